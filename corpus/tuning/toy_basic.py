"""Programs of a toy BASIC continued letter by letter: a decoder with RoPE by hand, tied output, accumulated updates."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

LETTERS = "\n ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=+*"


@dataclass
class Config:
    vocab: int = len(LETTERS)
    width: int = 32
    heads: int = 4
    depth: int = 2
    span: int = 32
    dropout: float = 0.1
    rows: int = 8
    parts: int = 2
    updates: int = 40
    warmup: int = 6
    lr: float = 6e-3


def listing(lines: int, seed: int) -> np.ndarray:
    """Numbered lines, each one a LET, a PRINT or a GOTO, as token ids."""
    rng = np.random.default_rng(seed)
    text = []
    for number in range(lines):
        name = "XYZ"[rng.integers(3)]
        kind = rng.integers(3)
        rest = (f"LET {name}={name}+{rng.integers(9)}", f"PRINT {name}", f"GOTO {rng.integers(lines) * 10}")[kind]
        text.append(f"{(number % 90 + 10)} {rest}\n")
    return np.array([LETTERS.index(c) for c in "".join(text)], dtype=np.uint8)


def rope_table(span: int, size: int) -> Tensor:
    rates = 1.0 / 1000 ** (torch.arange(0, size, 2).float() / size)
    angles = torch.arange(span).float()[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()])


def turn(x: Tensor, table: Tensor) -> Tensor:
    cos, sin = table[:, : x.shape[-2]]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=False)
        self.out = nn.Linear(c.width, c.width, bias=False)
        self.drop = nn.Dropout(c.dropout)
        future = torch.ones(c.span, c.span, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)
        self.register_buffer("table", rope_table(c.span, c.width // c.heads), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, span, width = x.shape
        q, k, v = (t.view(rows, span, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        q, k = turn(q, self.table), turn(k, self.table)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.future[:span, :span], float("-inf"))
        mixed = self.drop(scores.softmax(dim=-1)) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, span, width))


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.attention = Attention(c)
        self.mlp = nn.Sequential(nn.Linear(c.width, 4 * c.width), nn.SiLU(), nn.Linear(4 * c.width, c.width))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.drop(self.mlp(self.norm2(x)))


class BasicModel(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.depth))
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def sample(text: np.ndarray, c: Config, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    starts = rng.integers(0, len(text) - c.span - 1, c.rows)
    windows = torch.from_numpy(np.stack([text[s : s + c.span + 1] for s in starts]).astype(np.int64))
    return windows[:, :-1], windows[:, 1:]


@torch.inference_mode()
def perplexity(model: nn.Module, text: np.ndarray, c: Config) -> float:
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(text) - 1, c.span):
        window = torch.from_numpy(text[start : start + c.span + 1].astype(np.int64))[None]
        logits = model(window[:, :-1])
        total += F.cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
        count += window.shape[1] - 1
    model.train()
    return math.exp(total / count)


def fit(c: Config) -> None:
    torch.manual_seed(77)
    rng = np.random.default_rng(77)
    text, fresh = listing(500, seed=1), listing(40, seed=2)
    model = BasicModel(c)
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=0.05)
    ramp = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min(1.0, (n + 1) / c.warmup) * max(0.1, 1 - n / c.updates)
    )
    model.train()
    for update in range(c.updates):
        loss_sum = 0.0
        for _ in range(c.parts):
            ids, targets = sample(text, c, rng)
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            (loss / c.parts).backward()
            loss_sum += loss.item() / c.parts
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ramp.step()
        optimizer.zero_grad()
        if (update + 1) % 10 == 0:
            print(f"update {update + 1}: loss {loss_sum:.3f}, fresh perplexity {perplexity(model, fresh, c):.2f}")


if __name__ == "__main__":
    fit(Config())
