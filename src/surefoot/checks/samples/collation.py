"""Tests whether collation keeps the parts of a sample together."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.checks.engine.scene import array_of, tensors
from surefoot.checks.engine.types import AnyLoader
from surefoot.randomness import seed_all

_JOINED = 16


def collated_apart(reader: Any, loader: AnyLoader) -> bool:
    """Does collation put values of one sample next to those of another?

    Each sample is also collated alone. The largest value shows which sample went where; all other values must be there.
    A value that is also in its right place is a second copy, to mix or contrast samples with.
    """
    join, count = loader.collate_fn, min(_JOINED, len(reader))
    if join is None or count < 4:
        return False
    samples = [reader[place] for place in range(count)]
    alone = [_joined(join, [sample]) for sample in samples]
    together = _joined(join, samples)
    if any(len(each) != len(together) for each in alone):
        return False
    columns = [[each[place] for each in alone] for place in range(len(together))]
    rows = [place for place, whole in enumerate(together) if whole.ndim and len(whole) == count]
    for place in sorted(rows, key=lambda place: -together[place].size):
        order = _where(together[place], columns[place])
        if order is not None:
            apart = {n for n, whole in enumerate(together) if n != place and _is_apart(whole, columns[n], order)}
            return any(not _is_held_twice(n, columns, apart) for n in apart)
    return False


def _is_held_twice(place: int, columns: list[list[np.ndarray]], apart: set[int]) -> bool:
    """Does a value in its right place hold the same for every sample?"""
    others = (each for n, each in enumerate(columns) if n not in apart)
    return any(all(map(np.array_equal, each, columns[place])) for each in others)


def _joined(join: Any, samples: list[Any]) -> list[np.ndarray]:
    seed_all(0)
    return [array_of(each) for each in tensors(join(samples))]


def _where(whole: np.ndarray, column: list[np.ndarray]) -> list[int] | None:
    """The sample of each row; None unless every row belongs to exactly one sample."""
    order = []
    for row in whole:
        alike = [place for place, one in enumerate(column) if len(one) == 1 and _begins_with(row, one[0])]
        if len(alike) != 1:
            return None
        order += alike
    return order if len(set(order)) == len(order) else None


def _is_apart(whole: np.ndarray, column: list[np.ndarray], order: list[int]) -> bool:
    """Are these the values of the samples, each once, in another order?"""
    if all(len(one) == 1 for one in column) and whole.ndim and len(whole) == len(column):
        moved = any(not _begins_with(whole[row], column[place][0]) for row, place in enumerate(order))
        return moved and _same_rows(whole, [one[0] for one in column])
    pieces = [column[place] for place in order]
    if whole.ndim != 1 or any(one.ndim != 1 for one in pieces) or sum(map(len, pieces)) != len(whole):
        return False
    return not np.array_equal(np.concatenate(pieces), whole) and np.array_equal(
        np.sort(np.concatenate(pieces)), np.sort(whole)
    )


def _same_rows(whole: np.ndarray, rows: list[np.ndarray]) -> bool:
    left = list(rows)
    for row in whole:
        match = next((n for n, one in enumerate(left) if _begins_with(row, one)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _begins_with(row: np.ndarray, one: np.ndarray) -> bool:
    """Is a row the values of one sample, followed by a single padding value only?"""
    if row.ndim != one.ndim or any(a < b for a, b in zip(row.shape, one.shape, strict=True)):
        return False
    inside = tuple(slice(0, size) for size in one.shape)
    if not np.array_equal(row[inside], one):
        return False
    outside = np.ones(row.shape, dtype=bool)
    outside[inside] = False
    return len(np.unique(row[outside])) <= 1
