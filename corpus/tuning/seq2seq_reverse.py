"""Words written backwards: an encoder-decoder transformer, teacher forcing, an inverse square root schedule."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS = 0, 1, 2
LETTERS = 10
VOCABULARY = 3 + LETTERS
LONGEST = 12


class Words(Dataset):
    def __init__(self, words):
        self.words = words

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        word = self.words[index]
        return torch.tensor([*word, EOS]), torch.tensor([BOS, *reversed(word), EOS])


def collate(pairs):
    sources, targets = zip(*pairs, strict=True)
    source = torch.full((len(pairs), LONGEST), PAD)
    target = torch.full((len(pairs), LONGEST), PAD)
    for row, (one, other) in enumerate(zip(sources, targets, strict=True)):
        source[row, : len(one)] = one
        target[row, : len(other)] = other
    return {"source": source, "target": target}


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        place = torch.arange(LONGEST).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1000.0) / width))
        table = torch.zeros(LONGEST, width)
        table[:, 0::2] = torch.sin(place * rate)
        table[:, 1::2] = torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Reverser(nn.Module):
    def __init__(self, width=32, heads=4, drop=0.05):
        super().__init__()
        self.scale = math.sqrt(width)
        self.embed = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.positions = Positions(width)
        self.drop = nn.Dropout(drop)
        self.transformer = nn.Transformer(width, heads, 1, 2, 2 * width, dropout=drop, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, source, target):
        blank = source == PAD
        future = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), diagonal=1)
        read = self.drop(self.positions(self.embed(source) * self.scale))
        written = self.drop(self.positions(self.embed(target) * self.scale))
        states = self.transformer(
            read, written, tgt_mask=future, src_key_padding_mask=blank, memory_key_padding_mask=blank
        )
        return self.out(states)


def token_loss(model, batch, reduction="mean"):
    target = batch["target"]
    logits = model(batch["source"], target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, reduction=reduction)


def evaluate(model, loader):
    model.eval()
    total, tokens = 0.0, 0
    with torch.no_grad():
        for batch in loader:
            total += token_loss(model, batch, reduction="sum").item()
            tokens += (batch["target"][:, 1:] != PAD).sum().item()
    return total / tokens


def main():
    random.seed(3)
    torch.manual_seed(3)
    words = set()
    while len(words) < 700:
        words.add(tuple(random.randrange(3, VOCABULARY) for _ in range(random.randint(4, 9))))
    words = sorted(words)
    random.shuffle(words)
    train_loader = DataLoader(Words(words[:630]), batch_size=30, shuffle=True, collate_fn=collate)
    held_loader = DataLoader(Words(words[630:]), batch_size=30, collate_fn=collate)

    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    warmup = 15
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
    )
    step, last = 0, 5 * len(train_loader)
    while step < last:
        model.train()
        for batch in train_loader:
            loss = token_loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
        print(f"step {step}: {loss.item():.3f}, held {evaluate(model, held_loader):.3f}")
    torch.save(model.state_dict(), "reverser.pt")


if __name__ == "__main__":
    main()
