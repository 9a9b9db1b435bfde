"""Micro-batches of a data set, in an order that depends on the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from surefoot.errors import RecipeError
from surefoot.recipe import Recipe


class ShuffledForever(Sampler[int]):
    """Every sample once per epoch, each epoch in another order; epoch `e` of seed `s` is always the same."""

    def __init__(self, samples: int, seed: int) -> None:
        self.samples, self.seed = samples, seed

    def __iter__(self) -> Iterator[int]:
        epoch = 0
        while True:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            yield from torch.randperm(self.samples, generator=generator).tolist()
            epoch += 1


def micro_batches(dataset: Dataset[Any], *, size: int, seed: int) -> Iterator[Any]:
    """Micro-batches of `size` samples without end. It draws nothing from torch's global generator."""
    if isinstance(dataset, IterableDataset):
        raise RecipeError(f"{type(dataset).__name__} has no length; data must be a map-style data set for now")
    samples = len(dataset)
    if samples == 0:
        raise RecipeError("the data set is empty")
    loader = DataLoader(
        dataset,
        batch_size=size,
        sampler=ShuffledForever(samples, seed),
        generator=torch.Generator().manual_seed(seed),
    )
    return iter(loader)


def batches_of(recipe: Recipe) -> Iterator[Any]:
    """The micro-batches of a recipe's data, in the order of its seed."""
    return micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=recipe.seed)
