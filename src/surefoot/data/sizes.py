"""Sizes: looks through the micro-batches of one pass for the largest, without training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import cast

from surefoot.data.batches import has_samples, micro_batches
from surefoot.recipe.build import build_data
from surefoot.recipe.recipe import Recipe
from surefoot.trees import plain, tensors_in
from surefoot.units import bytes_text

LOOK_SECONDS = 2.0
"""How long a plan looks for the largest micro-batch."""
ALIKE = 100
"""If so many micro-batches have one size, all are taken to have it: their order is random."""


@dataclass(frozen=True)
class Sizes:
    """The bytes of micro-batches, in their order over all ranks, and how many a pass has."""

    looked: tuple[int, ...]
    pass_length: int
    ranks: int
    per_step: int
    """The micro-batches of one step on one rank."""

    @property
    def differ(self) -> bool:
        return len(set(self.looked)) > 1

    @property
    def largest(self) -> tuple[int, int]:
        """The step and the rank with the largest micro-batch."""
        place = self.looked.index(max(self.looked))
        return place // self.ranks // self.per_step, place % self.ranks

    def __str__(self) -> str:
        ordered, count = sorted(self.looked), len(self.looked)
        middle, high = ordered[count // 2], ordered[min(count - 1, count * 9 // 10)]
        of = f"all {count:,}" if count == self.pass_length else f"the first {count:,} of {self.pass_length:,}"
        return (
            f"micro-batches differ in size: {bytes_text(ordered[0])} to {bytes_text(ordered[-1])}, median "
            f"{bytes_text(middle)}, 90% up to {bytes_text(high)}, in {of} of a pass; a steady step has the largest, "
            f"from step {self.largest[0] + 1:,}"
        )


def sizes_of(
    recipe: Recipe, *, ranks: int = 1, seconds: float = LOOK_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Sizes | None:
    """The sizes of one pass, or of as much of it as there is time for. None if they cannot differ.

    Which samples a step holds is known beforehand. Samples of a data set without a `collate` function have one shape,
    unless a micro-batch is a single sample. Streams and sources are not read ahead.
    """
    may_differ = recipe.collate is not None or recipe.micro_batch_size == 1
    if not may_differ or not has_samples(dataset := build_data(recipe)):
        return None
    per_step = recipe.micro_batches(ranks)
    length = -(-len(cast(Sized, dataset)) // recipe.micro_batch_size)
    most = min(length, (recipe.steps() or length) * per_step * ranks)
    batches = micro_batches(dataset, size=recipe.micro_batch_size, seed=recipe.seed_of_data, collate=recipe.collate)
    looked, began = list[int](), clock()
    while len(looked) < most and (not looked or clock() - began < seconds):
        looked.append(sum(part.nbytes for each in tensors_in(next(batches)) for part in plain(each)))
        if len(looked) == ALIKE and len(set(looked)) == 1:
            break
    batches.close()
    return Sizes(tuple(looked), most, ranks, per_step)
