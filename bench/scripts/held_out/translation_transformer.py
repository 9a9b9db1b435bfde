"""Trains nn.Transformer to translate sentences of a made-up language, with padding masks and a warm-up."""

import math
import random
from timeit import default_timer as timer

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
UNK_IDX, PAD_IDX, BOS_IDX, EOS_IDX = 0, 1, 2, 3
torch.manual_seed(0)
random.seed(0)


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 500):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding: Tensor):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class Seq2SeqTransformer(nn.Module):
    def __init__(self, layers, emb_size, nhead, src_vocab, tgt_vocab, dim_feedforward=512, dropout=0.1):
        super().__init__()
        self.transformer = Transformer(
            d_model=emb_size,
            nhead=nhead,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=dim_feedforward,
            dropout=dropout,
        )
        self.generator = nn.Linear(emb_size, tgt_vocab)
        self.src_tok_emb = nn.Embedding(src_vocab, emb_size)
        self.tgt_tok_emb = nn.Embedding(tgt_vocab, emb_size)
        self.scale = math.sqrt(emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout=dropout)

    def forward(self, src, trg, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, memory_padding_mask):
        src_emb = self.positional_encoding(self.src_tok_emb(src) * self.scale)
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(trg) * self.scale)
        outs = self.transformer(
            src_emb, tgt_emb, src_mask, tgt_mask, None, src_padding_mask, tgt_padding_mask, memory_padding_mask
        )
        return self.generator(outs)


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz), device=DEVICE)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def create_mask(src, tgt):
    src_seq_len, tgt_seq_len = src.shape[0], tgt.shape[0]
    tgt_mask = generate_square_subsequent_mask(tgt_seq_len)
    src_mask = torch.zeros((src_seq_len, src_seq_len), device=DEVICE).type(torch.bool)
    return src_mask, tgt_mask, (src == PAD_IDX).transpose(0, 1), (tgt == PAD_IDX).transpose(0, 1)


SRC_VOCAB, TGT_VOCAB, EMB, NHEAD, BATCH = 3000, 2500, 128, 4, 32


def make_pair():
    source = [random.randrange(4, SRC_VOCAB) for _ in range(random.randint(6, 30))]
    target = [4 + (s * 7) % (TGT_VOCAB - 4) for s in reversed(source) if s % 5]
    return source, target


def collate_fn(batch):
    def wrap(ids):
        return torch.cat((torch.tensor([BOS_IDX]), torch.tensor(ids, dtype=torch.long), torch.tensor([EOS_IDX])))

    src, tgt = [wrap(s) for s, _ in batch], [wrap(t) for _, t in batch]
    return pad_sequence(src, padding_value=PAD_IDX), pad_sequence(tgt, padding_value=PAD_IDX)


pairs = [make_pair() for _ in range(160)]
transformer = Seq2SeqTransformer(2, EMB, NHEAD, SRC_VOCAB, TGT_VOCAB)
for p in transformer.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
transformer = transformer.to(DEVICE)
loss_fn = torch.nn.CrossEntropyLoss(ignore_index=PAD_IDX, label_smoothing=0.1)
optimizer = torch.optim.Adam(transformer.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
noam = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: EMB**-0.5 * min((s + 1) ** -0.5, (s + 1) * 400**-1.5))


def train_epoch(model, optimizer):
    model.train()
    losses = 0
    loader = DataLoader(pairs, batch_size=BATCH, shuffle=True, collate_fn=collate_fn)
    for src, tgt in loader:
        src = src.to(DEVICE)
        tgt = tgt.to(DEVICE)
        tgt_input = tgt[:-1, :]
        src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
        logits = model(src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, src_padding_mask)
        optimizer.zero_grad()
        tgt_out = tgt[1:, :]
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        noam.step()
        losses += loss.item()
    return losses / len(list(loader))


for epoch in range(1, 3):
    start_time = timer()
    train_loss = train_epoch(transformer, optimizer)
    end_time = timer()
    print(f"Epoch: {epoch}, Train loss: {train_loss:.3f}, Epoch time = {(end_time - start_time):.3f}s")


@torch.no_grad()
def greedy_decode(model, src, max_len):
    model.eval()
    memory = model.transformer.encoder(model.positional_encoding(model.src_tok_emb(src) * model.scale))
    ys = torch.ones(1, 1).fill_(BOS_IDX).type(torch.long).to(DEVICE)
    for _ in range(max_len - 1):
        emb = model.positional_encoding(model.tgt_tok_emb(ys) * model.scale)
        out = model.transformer.decoder(emb, memory, generate_square_subsequent_mask(ys.size(0)))
        next_word = model.generator(out[-1]).argmax(dim=1).item()
        ys = torch.cat([ys, torch.ones(1, 1).type_as(src.data).fill_(next_word)], dim=0)
        if next_word == EOS_IDX:
            break
    return ys.flatten()


print(greedy_decode(transformer, torch.tensor(pairs[0][0]).view(-1, 1).to(DEVICE), max_len=8).tolist())
