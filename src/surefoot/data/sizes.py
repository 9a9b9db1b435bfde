"""Sizes: looks through the first micro-batches for the largest, without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import torch

from surefoot.data.batches import has_samples, micro_batches
from surefoot.recipe.build import build_data
from surefoot.recipe.recipe import Recipe
from surefoot.records.plan import STEPS_DIFFER
from surefoot.trees import plain
from surefoot.units import bytes_text

LOOK_SAMPLES, LOOK_LEAST = 1024, 4
"""How many samples a plan reads to find the largest micro-batch, and how many micro-batches at least.

The budget is no time: a plan must not depend on how fast the machine is.
"""
ALIKE = 256
"""If so many samples make micro-batches of one shape, all are taken to have it: their order is random."""
DEEPEST = 6
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Sizes:
    """The bytes of micro-batches, in their order over all ranks, and how many a pass has."""

    looked: tuple[int, ...]
    pass_length: int | None
    """None for a stream, whose end is not known."""
    ranks: int
    per_step: int
    """The micro-batches of one step on one rank."""
    shapes: tuple[Shapes, ...] = ()
    """The shapes of the tensors of each micro-batch."""

    @property
    def differ(self) -> bool:
        return len(set(self.looked)) > 1 or len(set(self.shapes)) > 1

    @property
    def largest(self) -> tuple[int, int]:
        """The step and the rank with the largest micro-batch."""
        return self._at(self.looked)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The steps and ranks that may take most: with the most bytes, and with the longest tensor."""
        longest = [max((size for shape in shapes for size in shape[1:]), default=0) for shapes in self.shapes]
        return list(dict.fromkeys([self.largest, *([self._at(longest)] if any(longest) else [])]))

    def _at(self, sizes: Sequence[int]) -> tuple[int, int]:
        place = sizes.index(max(sizes))
        return place // self.ranks // self.per_step, place % self.ranks

    @property
    def said(self) -> str:
        """What a plan says of them; among its first lines, if it did not read all."""
        if len(self.looked) == self.pass_length:
            return str(self)
        return f"{STEPS_DIFFER}{self}; larger ones may follow, which is not validated"

    def __str__(self) -> str:
        ordered, count = sorted(self.looked), len(self.looked)
        middle, high = ordered[count // 2], ordered[min(count - 1, count * 9 // 10)]
        of = f"all {count:,}" if count == self.pass_length else f"the first {count:,}"
        more = f" of {self.pass_length:,}" if self.pass_length not in (None, count) else ""
        return (
            f"micro-batches differ in size: {bytes_text(ordered[0])} to {bytes_text(ordered[-1])}, median "
            f"{bytes_text(middle)}, 90% up to {bytes_text(high)}, in {of}{more} of a {self._pass}; a steady step has "
            f"the largest, from step {self.largest[0] + 1:,}"
        )

    @property
    def _pass(self) -> str:
        return "stream" if self.pass_length is None else "pass"


def sizes_of(recipe: Recipe, *, ranks: int = 1, samples: int = LOOK_SAMPLES) -> Sizes | None:
    """The sizes of one pass, or of its first `samples` samples. None if they cannot differ.

    Which samples a step holds is known beforehand. Samples of a data set without a `collate` function have one shape,
    unless a micro-batch is a single sample.
    """
    dataset = build_data(recipe)
    sized = has_samples(dataset)
    if sized and recipe.collate is None and recipe.micro_batch_size > 1:
        return None
    per_step, size = recipe.micro_batches(ranks), recipe.micro_batch_size
    length = -(-len(cast(Sized, dataset)) // size) if sized else None
    steps = recipe.steps()
    run = None if steps is None else steps * per_step * ranks
    whole = min((each for each in (length, run) if each is not None), default=None)
    most = max(LOOK_LEAST, samples // size)
    batches = micro_batches(dataset, size=size, seed=recipe.seed_of_data, collate=recipe.collate)
    looked, shapes = list[int](), list[Shapes]()
    while len(looked) < (most if whole is None else min(whole, most)):
        found = [part for each in tensors_inside(next(batches)) for part in plain(each)]
        looked.append(sum(part.nbytes for part in found))
        shapes.append(tuple(tuple(part.shape) for part in found))
        if len(looked) >= max(LOOK_LEAST, ALIKE // size) and len(set(shapes)) == 1:
            break
    batches.close()
    return Sizes(tuple(looked), whole, ranks, per_step, tuple(shapes))


def tensors_inside(batch: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """The tensors of a batch in any container: lists, mappings, data classes, objects with attributes."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth and isinstance(batch, Mapping):
        for each in batch.values():
            yield from tensors_inside(each, depth - 1)
    elif depth and isinstance(batch, list | tuple):
        for each in batch:
            yield from tensors_inside(each, depth - 1)
    elif depth and hasattr(batch, "__dict__") and not isinstance(batch, type):
        yield from tensors_inside(vars(batch), depth - 1)
