"""Translates one toy language into another with nn.Transformer: padding masks, teacher forcing, ignore_index."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(77)
PAD, BOS, EOS, VOCAB, WIDTH = 0, 1, 2, 30, 32


class PositionalEncoding(nn.Module):
    def __init__(self, width, dropout, length=32):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rate = torch.exp(-torch.arange(0, width, 2) * 9.2 / width)
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", table)

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(1)])


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.position = PositionalEncoding(WIDTH, 0.1)
        self.transformer = nn.Transformer(WIDTH, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.generator = nn.Linear(WIDTH, VOCAB)

    def forward(self, src, tgt):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        src_pad = torch.zeros(src.shape).masked_fill(src == PAD, float("-inf"))
        tgt_pad = torch.zeros(tgt.shape).masked_fill(tgt == PAD, float("-inf"))
        out = self.transformer(
            self.position(self.src_embed(src)),
            self.position(self.tgt_embed(tgt)),
            tgt_mask=causal,
            src_key_padding_mask=src_pad,
            tgt_key_padding_mask=tgt_pad,
            memory_key_padding_mask=src_pad,
        )
        return self.generator(out)


def sentences(n, seed):
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        words = [rng.randrange(3, VOCAB) for _ in range(rng.randint(3, 8))]
        other = [3 + (w * 7) % (VOCAB - 3) for w in reversed(words)]
        pairs.append((torch.tensor([*words, EOS]), torch.tensor([BOS, *other, EOS])))
    return pairs


def collate_fn(batch):
    src = pad_sequence([s for s, _ in batch], batch_first=True, padding_value=PAD)
    tgt = pad_sequence([t for _, t in batch], batch_first=True, padding_value=PAD)
    return src, tgt


train_iter = DataLoader(sentences(144, 1), batch_size=12, shuffle=True, collate_fn=collate_fn)
valid_iter = DataLoader(sentences(36, 2), batch_size=12, collate_fn=collate_fn)
net = Translator()
for p in net.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9)


def train_epoch():
    net.train()
    losses = 0.0
    for src, tgt in train_iter:
        tgt_input, tgt_out = tgt[:, :-1], tgt[:, 1:]
        logits = net(src, tgt_input)
        optimizer.zero_grad()
        loss = loss_fn(logits.reshape(-1, VOCAB), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        losses += loss.item()
    return losses / len(train_iter)


def evaluate():
    net.eval()
    losses = 0.0
    with torch.no_grad():
        for src, tgt in valid_iter:
            logits = net(src, tgt[:, :-1])
            losses += loss_fn(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1)).item()
    return losses / len(valid_iter)


for epoch in range(1, 3):
    print(f"Epoch: {epoch}, Train loss: {train_epoch():.3f}, Val loss: {evaluate():.3f}")
