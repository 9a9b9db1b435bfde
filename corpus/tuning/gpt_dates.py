"""Dates written out, learned by a small GPT: tokens in a file, a generator of batches, accumulation, tied weights."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = "\n -0123456789JFMASOND"
CONTEXT, BATCH, ACCUM, STEPS = 24, 8, 2, 30


def write_tokens(path, days, seed):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(days):
        year, month, day = rng.integers(1900, 2030), rng.integers(1, 10), rng.integers(1, 29)
        lines.append(f"{year}-{month}-{day:02d} {'JFMAMJJASOND'[month - 1]} {day}\n")
    np.array([CHARS.index(c) for line in lines for c in line], dtype=np.uint16).tofile(path)


def batches(path, seed):
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,), generator=generator)
        rows = torch.stack([torch.from_numpy(tokens[s : s + CONTEXT + 1].astype(np.int64)) for s in starts])
        yield rows[:, :-1], rows[:, 1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool)), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        mixed = mixed.transpose(1, 2).reshape(b, t, c)
        return self.out(mixed)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=32, heads=4, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(len(CHARS), width)
        self.places = nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(CHARS), bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        positions = torch.arange(ids.shape[1])
        x = self.tokens(ids) + self.places(positions)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def rate(step):
    return min((step + 1) / 5, 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / STEPS)))


def train():
    torch.manual_seed(8)
    write_tokens("dates.bin", 600, seed=1)
    write_tokens("held.bin", 60, seed=2)
    stream, held = batches("dates.bin", seed=3), batches("held.bin", seed=4)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(ACCUM):
            x, y = next(stream)
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) / ACCUM
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        schedule.step()
        if step % 10 == 9:
            with torch.no_grad():
                x, y = next(held)
                bits = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item() / math.log(2)
            print(f"{step + 1:3d} train {ACCUM * loss.item():.3f} held {bits:.3f} bits")
    torch.save(model.state_dict(), "gpt.pt")


if __name__ == "__main__":
    train()
