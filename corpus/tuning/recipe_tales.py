"""Tales of invented words, kept as two-byte numbers: a decoder with rotary positions, blocks recomputed, a recipe."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from surefoot import Recipe

WORDS, END, LENGTH = 300, 0, 280


def tell(count: int, seed: int) -> bytes:
    """Tales one after the other, each closed by END; every word is followed by one of three."""
    following = np.random.default_rng(0).integers(1, WORDS, (WORDS, 3))
    rng = np.random.default_rng(seed)
    words: list[int] = []
    for _ in range(count):
        word = int(rng.integers(1, WORDS))
        for _ in range(int(rng.integers(30, 60))):
            words.append(word)
            word = int(following[word, rng.integers(3)])
        words.append(END)
    return np.array(words, dtype=np.uint16).tobytes()


class Tales(Dataset):
    """Rows of a fixed length cut from the stream of tales, and the same rows one word later."""

    def __init__(self, told: bytes) -> None:
        self.words = np.frombuffer(told, dtype=np.uint16)

    def __len__(self) -> int:
        return (len(self.words) - 1) // LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.words[index * LENGTH : (index + 1) * LENGTH + 1].astype(np.int64)
        return torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.merge = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            layer(x).view(rows, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(rows, length, width)
        return self.merge(mixed)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.drop = nn.Dropout(0.05)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        y = F.gelu(self.widen(self.norm2(x)))
        return x + self.drop(self.narrow(y))


class Teller(nn.Module):
    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.gain = nn.Parameter(torch.ones(width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.embed.weight
        half = width // heads // 2
        places = torch.arange(LENGTH, dtype=torch.float32)
        angles = places[:, None] * 100.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) * self.gain
        for block in self.blocks:
            x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
        return self.head(self.norm(x))


def next_word(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    words, following = batch
    logits = model(words)
    total = F.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="sum")
    return total, torch.tensor(following.numel())


def tales(width: int = 32, heads: int = 2, depth: int = 2, lr: float = 0.01) -> Recipe:
    return Recipe(
        model=lambda: Teller(width, heads, depth),
        data=lambda: Tales(tell(500, seed=1)),
        evaluation=lambda: Tales(tell(50, seed=2)),
        loss=next_word,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.02),
        schedule=lambda step, steps: min(1.0, (step + 1) / 5),
        micro_batch_size=4,
        tokens_per_sample=LENGTH,
        global_batch_tokens=2 * 4 * LENGTH,
        max_steps=24,
        max_grad_norm=1.0,
        evaluate_every=12,
    )
