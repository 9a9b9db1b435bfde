"""Couplets that rhyme, by a small GPT: a token file, rows packed with whole couplets, rotary places, accumulation."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

EOS, PAD, FIRST = 0, 1, 2
ENDINGS, WORDS, VOCAB = 40, 8, FIRST + 40 * 8
LENGTH, ROWS, ACCUM, EPOCHS = 320, 4, 2, 3


def write_couplets(path, count, seed):
    """Two lines that end alike; each word's ending follows from the one before."""
    rng = np.random.default_rng(seed)
    tokens = []
    for _ in range(count):
        ending, size = rng.integers(ENDINGS), rng.integers(3, 7)
        line = [(ending + 3 * (size - 1 - i)) % ENDINGS for i in range(size)]
        tokens += [FIRST + e * WORDS + rng.integers(WORDS) for e in (*line, *line)] + [EOS]
    np.array(tokens).astype(np.uint16).tofile(path)


def read_couplets(path):
    tokens = np.fromfile(path, dtype=np.uint16).astype(np.int64)
    ends = np.flatnonzero(tokens == EOS) + 1
    return [torch.from_numpy(part) for part in np.split(tokens, ends) if len(part)]


def pack(couplets):
    """Rows of whole couplets: their tokens, the couplet each token is of (-1 for padding), and labels."""
    rows, row = [], []
    for couplet in couplets:
        if sum(map(len, row)) + len(couplet) > LENGTH:
            rows.append(row)
            row = []
        row.append(couplet)
    rows.append(row)
    ids = torch.full((len(rows), LENGTH), PAD)
    part = torch.full((len(rows), LENGTH), -1)
    for i, row in enumerate(rows):
        joined = torch.cat(row)
        ids[i, : len(joined)] = joined
        part[i, : len(joined)] = torch.cat([torch.full((len(c),), n) for n, c in enumerate(row)])
    labels = ids.clone()
    labels[ids == PAD] = -100
    labels[:, 1:][part[:, 1:] != part[:, :-1]] = -100  # no word can be told from another couplet
    return TensorDataset(ids, part, labels)


def rotary_table(size):
    places = torch.arange(LENGTH, dtype=torch.float32)
    rates = 1.0 / 100 ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(places, rates)
    return torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)


def rotate(x, table):
    cos, sin = (part[: x.shape[-2]] for part in table)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x, visible, table):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = rotate(q, table) @ rotate(k, table).transpose(-2, -1) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(~visible[:, None], float("-inf"))
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, c)
        x = x + self.drop(self.join(mixed))
        return x + self.drop(self.mlp(self.norm2(x)))


class RhymeGPT(nn.Module):
    def __init__(self, width=32, heads=2, depth=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        nn.init.normal_(self.words.weight, std=0.1)
        self.head.weight = self.words.weight
        cos, sin = rotary_table(width // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, part):
        past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        visible = past & (part[:, :, None] == part[:, None, :])
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, visible, (self.cos, self.sin), use_reentrant=False)
        return self.head(self.norm(x))


def summed_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def in_groups(loader, size):
    batches = list(loader)
    return [batches[start : start + size] for start in range(0, len(batches), size)]


def main():
    torch.manual_seed(15)
    write_couplets("train.bin", 2000, seed=1)
    write_couplets("held.bin", 150, seed=2)
    train_loader = DataLoader(pack(read_couplets("train.bin")), ROWS, shuffle=True)
    held_loader = DataLoader(pack(read_couplets("held.bin")), ROWS)
    model = RhymeGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.01)
    steps = EPOCHS * math.ceil(len(train_loader) / ACCUM)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps, pct_start=0.2)
    for epoch in range(EPOCHS):
        model.train()
        for group in in_groups(train_loader, ACCUM):
            words = sum((labels[:, 1:] != -100).sum() for _, _, labels in group)
            optimizer.zero_grad()
            total = 0.0
            for ids, part, labels in group:
                loss = summed_loss(model(ids, part), labels) / words
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        lost, words = 0.0, 0
        with torch.no_grad():
            for ids, part, labels in held_loader:
                lost += summed_loss(model(ids, part), labels).item()
                words += (labels[:, 1:] != -100).sum().item()
        print(f"epoch {epoch}: loss {total:.3f}, held out {lost / words:.3f}")


if __name__ == "__main__":
    main()
