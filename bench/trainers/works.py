"""The works that trainers are held to: recipes with dropout, running statistics, randomness in workers and streams."""

from __future__ import annotations

import email
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset, IterableDataset

from surefoot import Recipe
from surefoot.recipes import gpt as gpt_recipe
from surefoot.recipes import sentiment as sentiment_recipe
from surefoot.techniques.schedule import warmup_cosine

Parameters = Iterable[nn.Parameter]

OPTIMIZERS: dict[str, Callable[[Parameters], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    "adamw-amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5, centered=True),
}
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true")


def work(name: str, *, optimizer: str = "adamw", precision: str = "32-true", steps: int = 24) -> Recipe:
    """A work by its name, with this optimizer, in this precision."""
    return replace(
        WORKS[name](), name=name, optimizer=OPTIMIZERS[optimizer], precision=precision, max_steps=steps, max_tokens=None
    )


# ------------------------------------------------------------------------------------------- sentiment


class NoisyReviews(Dataset[tuple[Tensor, Tensor]]):
    """Reviews whose features are disturbed each time they are read, by numpy's global generator."""

    def __init__(self, samples: int) -> None:
        self.features, self.labels = sentiment_recipe.reviews(samples).tensors

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = np.random.normal(scale=0.1, size=4).astype(np.float32)
        return self.features[index] + torch.from_numpy(noise), self.labels[index]


def sentiment() -> Recipe:
    """BatchNorm, dropout, and two worker processes whose samples draw from numpy."""
    return replace(
        sentiment_recipe.sentiment(hidden=16),
        data=lambda: NoisyReviews(96),
        micro_batch_size=8,
        global_batch_tokens=16,
        workers=2,
        schedule=warmup_cosine(warmup_steps=4),
    )


# ------------------------------------------------------------------------------------------- gpt


def gpt() -> Recipe:
    """The reference recipe, small: tied weights, accumulation, clipping, a schedule."""
    corpus = str(Path(email.__file__).parent)
    return gpt_recipe.gpt(
        layers=2, width=32, heads=2, context=32, micro_batch_size=4, global_batch_tokens=256, corpus=corpus
    )


# ------------------------------------------------------------------------------------------- a user's map-style data


class Sentences(Dataset[list[int]]):
    """Made-up sentences of different lengths."""

    def __init__(self, samples: int) -> None:
        draw = random.Random(1)
        self.sentences = [[draw.randrange(1, 64) for _ in range(draw.randrange(2, 13))] for _ in range(samples)]

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> list[int]:
        return self.sentences[index]


def padded(samples: list[list[int]]) -> Tensor:
    """Sentences as rows, filled up with 0."""
    return nn.utils.rnn.pad_sequence([torch.tensor(each) for each in samples], batch_first=True)


class NextWord(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(64, 32)
        self.mix = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 64))

    def forward(self, words: Tensor) -> Tensor:
        return self.mix(self.word(words))


def next_word_loss(model: nn.Module, words: Tensor) -> tuple[Tensor, Tensor]:
    """A sum over the words that are there, and their number."""
    targets = words[:, 1:].flatten()
    losses = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), targets, ignore_index=0, reduction="sum")
    return losses, (targets != 0).sum()


def mapped() -> Recipe:
    """A user's map-style data set with a collate function of its own; micro-batches with uneven counts."""
    return Recipe(
        model=lambda: NextWord(dropout=0.2),
        data=lambda: Sentences(96),
        loss=next_word_loss,
        optimizer=OPTIMIZERS["adamw"],
        schedule=warmup_cosine(warmup_steps=4),
        collate=padded,
        micro_batch_size=4,
        global_batch_tokens=16,
        max_grad_norm=1.0,
    )


# ------------------------------------------------------------------------------------------- a user's stream


class Points(IterableDataset[tuple[Tensor, Tensor]]):
    """Points read one after another through a shuffle buffer that draws from a generator of its own."""

    def __init__(self, samples: int, buffer: int = 16) -> None:
        self.samples, self.buffer = samples, buffer

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        draw, waiting = random.Random(2), list[int]()
        for number in range(self.samples):
            waiting.append(number)
            if len(waiting) == self.buffer:
                yield self._point(waiting.pop(draw.randrange(len(waiting))))
        while waiting:
            yield self._point(waiting.pop(draw.randrange(len(waiting))))

    def _point(self, number: int) -> tuple[Tensor, Tensor]:
        x = torch.sin(torch.arange(1.0, 9.0) * (number + 1))
        return x, x.sum().view(1)


def point_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return F.mse_loss(model(x), y, reduction="sum"), len(y)


def streamed() -> Recipe:
    """A user's iterable data set."""
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)),
        data=lambda: Points(96),
        loss=point_loss,
        optimizer=OPTIMIZERS["adamw"],
        schedule=warmup_cosine(warmup_steps=4),
        micro_batch_size=4,
        global_batch_tokens=8,
        max_grad_norm=1.0,
    )


WORKS: dict[str, Callable[[], Recipe]] = {
    "sentiment": sentiment,
    "gpt": gpt,
    "mapped": mapped,
    "streamed": streamed,
}


TIMED: dict[str, Callable[[], Recipe]] = {
    "gpt short": lambda: gpt_recipe.gpt(
        layers=2, width=96, heads=3, context=128, micro_batch_size=8, global_batch_tokens=2048, max_steps=1_000_000
    ),
    "gpt long": lambda: gpt_recipe.gpt(
        layers=4, width=256, heads=4, context=256, micro_batch_size=4, global_batch_tokens=2048, max_steps=1_000_000
    ),
}


def loader_settings(recipe: Recipe, data: Dataset[Any]) -> dict[str, Any]:
    """What a peer's data loader is given: samples in random order, where they are not a stream."""
    return {
        "dataset": data,
        "batch_size": recipe.micro_batch_size,
        "shuffle": not isinstance(data, IterableDataset),
        "num_workers": recipe.workers,
        "collate_fn": recipe.collate,
    }


def scheduler(recipe: Recipe, optimizer: Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """The recipe's schedule as torch's scheduler."""
    follow, steps = recipe.schedule, recipe.steps() or 0
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if follow is None else follow(step, steps))
