"""Ballads as word numbers in a file: a recipe of a decoder with rotary places, one padded ballad to a row."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

WORDS, LENGTH, IGNORED = 320, 40, -100
PAD, START, END = 0, 1, 2


def write_ballads(path: str, count: int, seed: int) -> str:
    """Ballads of two to five lines; a line goes on from its first word, each by its own stride, and rhymes."""
    rng = np.random.default_rng(seed)
    words: list[int] = []
    for _ in range(count):
        stride, rhyme = rng.integers(1, 3), rng.integers(290, WORDS)
        words.append(START)
        for _ in range(rng.integers(2, 6)):
            first = rng.integers(0, 40)
            words += [3 + first + stride * place for place in range(rng.integers(4, 7))]
            words.append(rhyme)
        words.append(END)
    np.array(words).astype(np.uint16).tofile(path)
    return path


class Ballads(Dataset):
    def __init__(self, path: str) -> None:
        words = np.fromfile(path, dtype=np.uint16).astype(np.int64)
        starts = np.flatnonzero(words == START)
        self.ballads = [torch.from_numpy(ballad) for ballad in np.split(words, starts[1:])]

    def __len__(self) -> int:
        return len(self.ballads)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ballad = self.ballads[index]
        words, following = torch.full((LENGTH,), PAD), torch.full((LENGTH,), IGNORED)
        words[: len(ballad) - 1] = ballad[:-1]
        following[: len(ballad) - 1] = ballad[1:]
        return {"words": words, "following": following}


def rotary(width: int) -> tuple[Tensor, Tensor]:
    rates = 1.0 / 10000.0 ** (torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(LENGTH), rates)
    return angles.cos(), angles.sin()


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        cos, sin = rotary(width // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = turn(q, self.cos, self.sin), turn(k, self.cos, self.sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.gain = nn.Parameter(torch.ones(width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        y = self.down(F.gelu(self.up(self.between(x))))
        return x + self.gain * self.dropout(y)


class Balladeer(nn.Module):
    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.04)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def ballad_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits, following = model(batch["words"]), batch["following"]
    total = F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=IGNORED, reduction="sum")
    return total, (following != IGNORED).sum()


def warm_then_linear(step: int, steps: int) -> float:
    return min((step + 1) / 4, 1.0 - 0.9 * step / steps)


def ballads(width: int = 48, heads: int = 4, depth: int = 3, lr: float = 6e-3) -> Recipe:
    return Recipe(
        model=lambda: Balladeer(width, heads, depth),
        data=lambda: Ballads(write_ballads("ballads.bin", 400, seed=11)),
        evaluation=lambda: Ballads(write_ballads("held_ballads.bin", 40, seed=12)),
        loss=ballad_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.05),
        schedule=warm_then_linear,
        micro_batch_size=8,
        tokens_per_sample=LENGTH,
        global_batch_tokens=2 * 8 * LENGTH,
        max_steps=40,
        max_grad_norm=1.0,
        evaluate_every=20,
    )
