"""Streams of samples that differ in size: text of any length, batches by tokens, sounds, images of several scales."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import IterableDataset

from surefoot import Recipe

stream = family("streams", steps=8)
WORDS = 500


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


class Language(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width, padding_idx=0), nn.Linear(width, WORDS)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        if padding is not None:
            padding = torch.zeros_like(padding, dtype=mask.dtype).masked_fill(padding, float("-inf"))
        return self.head(self.body(self.embed(tokens), mask, padding))


def next_word(model: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = model(tokens[:, :-1], tokens[:, :-1] == 0)
    aims = tokens[:, 1:]
    return F.cross_entropy(scores.flatten(0, 1), aims.flatten(), ignore_index=0, reduction="sum"), (aims != 0).sum()


def words(random_numbers: random.Random, least: int = 8, most: int = 96) -> torch.Tensor:
    return torch.tensor([random_numbers.randrange(1, WORDS) for _ in range(random_numbers.randint(least, most))])


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(samples, batch_first=True)


@stream
def text_stream() -> Recipe:
    class Lines(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            numbers = random.Random(1)
            while True:
                yield words(numbers)

    return Recipe(model=Language, data=Lines, collate=padded, loss=next_word, optimizer=adamw, micro_batch_size=8,
                  max_steps=100)  # fmt: skip


@stream
def padded_to_longest() -> Recipe:
    return Recipe(model=Language, data=lambda: Samples(400, words), collate=padded, loss=next_word, optimizer=adamw,
                  micro_batch_size=8, max_steps=100)  # fmt: skip


@stream
def rare_long_samples() -> Recipe:
    """Nearly all samples are short, and one in 200 is long: a plan from a few batches does not meet it."""

    def line(numbers: random.Random) -> torch.Tensor:
        return words(numbers, 200, 200) if numbers.random() < 0.005 else words(numbers, 8, 24)

    return Recipe(model=Language, data=lambda: Samples(2000, line), collate=padded, loss=next_word, optimizer=adamw,
                  micro_batch_size=8, max_steps=250)  # fmt: skip


@stream
def batches_by_tokens() -> Recipe:
    """Batches of about as many tokens each: few long lines or many short ones."""

    def batch(number: int, size: int) -> torch.Tensor:
        numbers = random.Random(number)
        length = numbers.choice([16, 32, 64, 128])
        return torch.randint(1, WORDS, (size * 1024 // length // 8, length))

    return Recipe(model=Language, data=lambda: batch, loss=next_word, optimizer=adamw, micro_batch_size=8,
                  max_steps=100)  # fmt: skip


@stream
def packed_lines() -> Recipe:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 64), nn.Linear(128, 17)
            self.body = nn.LSTM(64, 64, bidirectional=True)

        def forward(self, lines: list[torch.Tensor]) -> torch.Tensor:
            packed = pack_sequence([self.embed(each) for each in lines], enforce_sorted=False)
            out, lengths = pad_packed_sequence(self.body(packed)[0], batch_first=True)
            return self.head(torch.cat([row[:length] for row, length in zip(out, lengths.tolist(), strict=True)]))

    def loss(model: nn.Module, lines: list[torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(model(lines), torch.cat(lines) % 17)

    return Recipe(model=Tagger, data=lambda: Samples(400, words), collate=list, loss=loss, optimizer=adamw,
                  micro_batch_size=16, max_steps=100)  # fmt: skip


@stream
def varlen_attention() -> Recipe:
    """Lines side by side in one row, with the places where they begin, as kernels for varying lengths take them."""

    class Varlen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.parts, self.head = nn.Embedding(WORDS, 64), nn.Linear(64, 192), nn.Linear(64, WORDS)

        def forward(self, tokens: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
            x, out = self.parts(self.embed(tokens)), []
            bounds = begins.tolist()
            for start, end in itertools.pairwise(bounds):
                q, k, v = (each.view(1, -1, 4, 16).transpose(1, 2) for each in x[start:end].chunk(3, -1))
                out.append(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)[0])
            return self.head(torch.cat(out))

    def joined(lines: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        lengths = torch.tensor([0, *(len(each) for each in lines)])
        return {"tokens": torch.cat(lines), "begins": lengths.cumsum(0)}

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(**batch)[:-1], batch["tokens"][1:])

    return Recipe(model=Varlen, data=lambda: Samples(400, words), collate=joined, loss=loss, optimizer=adamw,
                  micro_batch_size=16, max_steps=100)  # fmt: skip


@stream
def several_scales() -> Recipe:
    """Images whose size changes from batch to batch, as detectors of one stage are trained."""

    def batch(number: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        side = random.Random(number).choice([64, 96, 128, 160])
        return torch.randn(size, 3, side, side), torch.randint(0, 10, (size,))

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return Recipe(model=model, data=lambda: batch, loss=loss, optimizer=adamw, micro_batch_size=8, max_steps=100)


@dataclass
class Page:
    """A batch as projects define their own: fields, a list of tensors of any size, and numbers."""

    images: list[torch.Tensor]
    tokens: torch.Tensor
    widths: list[int]


@stream
def ragged_container() -> Recipe:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eyes, self.head = nn.Conv2d(1, 64, 8, 8), nn.Linear(64, WORDS)
            self.words = nn.GRU(64, 64, batch_first=True)
            self.embed = nn.Embedding(WORDS, 64)

        def forward(self, page: Page) -> torch.Tensor:
            seen = torch.stack([self.eyes(each[None]).mean((0, 2, 3)) for each in page.images])
            return self.head(self.words(self.embed(page.tokens), seen[None].contiguous())[0])

    def line(numbers: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(1, 32, 8 * numbers.randint(4, 40)), words(numbers, 4, 30)

    def collate(samples: list[Any]) -> Page:
        images, lines = zip(*samples, strict=True)
        return Page(list(images), pad_sequence(list(lines), batch_first=True), [each.shape[-1] for each in images])

    def loss(model: nn.Module, page: Page) -> torch.Tensor:
        return F.cross_entropy(model(page)[:, :-1].flatten(0, 1), page.tokens[:, 1:].flatten(), ignore_index=0)

    return Recipe(model=Reader, data=lambda: Samples(300, line), collate=collate, loss=loss, optimizer=adamw,
                  micro_batch_size=8, max_steps=100)  # fmt: skip


@stream
def curriculum() -> Recipe:
    """Contexts that grow as the run goes on."""

    def batch(number: int, size: int) -> torch.Tensor:
        return torch.randint(1, WORDS, (size, 16 * (1 + min(number, 7))))

    return Recipe(model=Language, data=lambda: batch, loss=next_word, optimizer=adamw, micro_batch_size=8,
                  max_steps=100)  # fmt: skip
