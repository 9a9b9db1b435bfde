"""Verses in metre, a language model of whole words as a recipe: rotary places, packed poems, a tied vocabulary."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

CONTEXT, IGNORED = 40, -100
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
WORDS = ["<end>", "<line>", *(x + y for x in SYLLABLES[:56] for y in ("n", "r", "l", "s", "m"))]
END, LINE = 0, 1
FEET = len(WORDS) - 2


def poem(rng: np.random.Generator) -> list[int]:
    """Lines of three words; each word follows from the one before it, lines rhyme in pairs."""
    tokens, word = [], int(rng.integers(FEET))
    for line in range(int(rng.integers(2, 5))):
        for _ in range(3):
            word = (word * 3 + 5 * int(rng.integers(1, 3)) + line) % FEET
            tokens.append(2 + word)
        tokens.append(LINE)
    return [*tokens, END]


class Poems(Dataset):
    """Rows of poems one after another, kept as small integers; a poem that is cut off goes on in no other row."""

    def __init__(self, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.tokens = np.zeros((rows, CONTEXT + 1), dtype=np.uint16)
        self.poem = np.zeros((rows, CONTEXT + 1), dtype=np.int64)
        for row in range(rows):
            filled, number = 0, 0
            while filled <= CONTEXT:
                piece = poem(rng)[: CONTEXT + 1 - filled]
                self.tokens[row, filled : filled + len(piece)] = piece
                self.poem[row, filled : filled + len(piece)] = number
                filled, number = filled + len(piece), number + 1

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.from_numpy(self.tokens[index].astype(np.int64))
        number = torch.from_numpy(self.poem[index])
        starts = torch.cat([torch.tensor([True]), number[1:] != number[:-1]])
        first = torch.where(starts, torch.arange(CONTEXT + 1), 0).cummax(0).values
        same = number[1:] == number[:-1]
        return {
            "tokens": tokens[:-1],
            "poem": number[:-1],
            "place": (torch.arange(CONTEXT + 1) - first)[:-1],
            "next": torch.where(same, tokens[1:], IGNORED),
        }


def turn(x: Tensor, place: Tensor) -> Tensor:
    """Rotates pairs of features by an angle that grows with the place."""
    half = x.shape[-1] // 2
    rate = torch.exp(-math.log(10_000.0) * torch.arange(half, device=x.device) / half)
    angle = place[:, None, :, None] * rate
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        n, t, w = x.shape
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(turn(q, place), turn(k, place), v, attn_mask=seen)
        x = x + self.drop(self.join(mixed.transpose(1, 2).flatten(2)))
        return x + self.drop(self.feed(self.between(x)))


class Poet(nn.Module):
    def __init__(self, width: int, heads: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(depth)])
        self.last = nn.LayerNorm(width)
        self.guess = nn.Linear(width, len(WORDS), bias=False)
        self.apply(self.start)
        self.guess.weight = self.words.weight

    def start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, poem: Tensor, place: Tensor) -> Tensor:
        past = torch.arange(tokens.shape[1], device=tokens.device)
        seen = (past[:, None] >= past) & (poem[:, :, None] == poem[:, None, :])
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, place, seen[:, None])
        return self.guess(self.last(x))


def verse_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The summed loss, and the number of words that bear it."""
    wanted = batch["next"]
    logits = model(batch["tokens"], batch["poem"], batch["place"])
    return F.cross_entropy(logits.mT, wanted, ignore_index=IGNORED, reduction="sum"), (wanted != IGNORED).sum()


def rate(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / 3)
    return warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def poems(width: int = 48, heads: int = 4, depth: int = 2, lr: float = 5e-3) -> Recipe:
    return Recipe(
        model=lambda: Poet(width, heads, depth, dropout=0.05),
        data=lambda: Poems(320, seed=7),
        evaluation=lambda: Poems(30, seed=8),
        loss=verse_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=rate,
        micro_batch_size=8,
        tokens_per_sample=CONTEXT,
        global_batch_tokens=2 * 8 * CONTEXT,
        max_steps=40,
        max_grad_norm=1.0,
        evaluate_every=20,
    )
