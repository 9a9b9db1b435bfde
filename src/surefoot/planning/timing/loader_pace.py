"""Loader pace: how many samples a second the recipe's data gives on this machine, by really reading some."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from surefoot.data.batches import batches_of, has_samples
from surefoot.recipe.recipe import Recipe
from surefoot.records.plan import LoaderPace

LOOK_SECONDS, MOST_SECONDS = 0.25, 2.0
"""How long data is read, and how long at most: one micro-batch is read even if it takes longer."""
FEWEST = 5
"""Micro-batches that are read unless they take too long."""


def loader_pace(recipe: Recipe, *, rank: int, ranks: int, clock: Callable[[], float]) -> LoaderPace:
    """Reads micro-batches of one rank in this process, and prepares none ahead.

    The first one opens files and fills caches: it counts only if there is no time for another. Of the others the
    median counts: other programs on the machine interrupt some.
    """
    batches = batches_of(recipe, rank=rank, ranks=ranks)

    def taken() -> float:
        began = clock()
        next(batches)
        return clock() - began

    first, taken_by = taken(), list[float]()
    while first + sum(taken_by) < (LOOK_SECONDS if len(taken_by) >= FEWEST else MOST_SECONDS):
        taken_by.append(taken())
    parallel = has_samples(batches.dataset)
    batches.close()
    taken_by = taken_by or [first]
    size = recipe.micro_batch_size
    return LoaderPace(size / median(taken_by), size * len(taken_by), parallel)
