"""Finds the arrays from which a loop takes its batches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn
from torch.utils.data import DataLoader

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.scene import LARGEST, readable
from surefoot.events.callers import frames
from surefoot.source.frames import variables
from surefoot.torch_inside.modes import aside

MOST_ROWS = 512
LONGEST = 16 * MOST_ROWS
"""Longer arrays are not read."""
LONGEST_TEXT = 1 << 22
"""The limit for one row of tokens."""
_FRAMES = 32
_DEEP = 3
FEWEST = 4
"""Rows with fewer elements repeat by chance."""
_SHORT = 16
_SAMPLES = 16
"""A list of at least this many items is a list of samples."""
_WINDOW = 8
"""Shorter windows of tokens occur twice in a text."""
_DISTINCT = 0.9
"""At least this share of an array's rows must be distinct, so that values identify a row."""
_NOT_LOOKED_INTO = ("torch", "surefoot", "numpy", "builtins", "transformers", "lightning", "accelerate")


def prints(values: torch.Tensor, most: int = MOST_ROWS) -> list[int]:
    """A hash of each row."""
    with aside():
        rows = HOST.of(values)[:most].reshape(min(most, len(values)), -1)
        raw = rows.clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy()
    return [xxhash.xxh3_64_intdigest(np.ascontiguousarray(row).data) for row in raw]


def row_prints(values: torch.Tensor, most: int = MOST_ROWS) -> list[int]:
    """A hash of each row. Short rows have the same hash in every dtype."""
    with aside():
        values, short = HOST.of(values), values[0].numel() <= _SHORT if len(values) else False
        return prints(values.double() if short else values, most)


def arrays_in_sight(*, lists: bool = False, longest: int = LONGEST) -> list[torch.Tensor]:
    """The arrays that running functions hold in variables, in containers and in attributes of objects.

    With `lists`, also the columns of lists of samples, and long texts.
    """
    found: dict[int, tuple[Any, torch.Tensor]] = {}  # keeps both alive, so that no id is used twice
    for frame in islice(frames(), _FRAMES):
        if frame.f_globals.get("__name__", "").split(".")[0] not in ("torch", "surefoot"):
            for array in _arrays(list(variables(frame).values())[:256], _DEEP, lists=lists):
                found.setdefault(id(array), (array, _tensor(array)))
    seen = (each for _, each in found.values())
    return [each for each in seen if readable(each) and 1 <= len(each) <= max(longest, _longest(each, lists=lists))]


def names_in_sight(thing: object) -> set[str]:
    """The names that running functions have for an object, in variables, attributes and dicts."""
    found = set()
    for frame in islice(frames(), _FRAMES):
        if frame.f_globals.get("__name__", "").split(".")[0] not in ("torch", "surefoot"):
            known = variables(frame)
            inside = [each for each in known.values() if isinstance(each, dict)]
            inside += [vars(known["self"])] if hasattr(known.get("self"), "__dict__") else []
            found |= {str(name) for each in (known, *inside) for name, value in list(each.items()) if value is thing}
    return found


def arrays_held_by(thing: object) -> list[torch.Tensor]:
    """The arrays in attributes and containers of one object."""
    arrays = _arrays([thing], _DEEP, lists=False)
    return [each for array in arrays if readable(each := _tensor(array)) and len(each)]


def _longest(array: torch.Tensor, *, lists: bool) -> int:
    return LONGEST_TEXT if lists and array.dim() == 1 and not array.is_floating_point() else LONGEST


def _arrays(items: Iterable[Any], deep: int, *, lists: bool) -> Iterator[torch.Tensor | np.ndarray]:
    for each in items:
        if lists and isinstance(each, list | tuple | deque) and _SAMPLES <= len(each) <= LONGEST:
            yield from _columns(each)
        if isinstance(each, torch.Tensor | np.ndarray):
            if each.ndim and (isinstance(each, torch.Tensor) or each.dtype.kind in "iufb"):
                yield each
        elif deep:
            yield from _arrays(_held_by(each), deep - 1, lists=lists)


def _columns(samples: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The columns of a list of samples: each value joined with the same value of all others."""
    rows = [list(each.values()) if isinstance(each, dict) else each for each in samples]
    if not all(type(each) in (list, tuple) for each in rows):
        rows = [[each] for each in rows]
    for column in zip(*rows, strict=False):
        with suppress(ValueError, TypeError, RuntimeError), aside():  # strings are skipped
            values = [torch.as_tensor(each) for each in column]
            if sum(each.numel() for each in values) <= LARGEST:
                yield torch.stack(values) if len({each.shape for each in values}) == 1 else torch.cat(values)


def _held_by(thing: object) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())[:64]
    if isinstance(thing, list | tuple | deque):
        return list(islice(thing, 16))
    if isinstance(thing, DataLoader):
        return [thing.dataset]
    known = type(thing).__module__.split(".")[0] in _NOT_LOOKED_INTO and not hasattr(thing, "__getitem__")
    if known or isinstance(thing, nn.Module | type) or not hasattr(thing, "__dict__"):
        return []
    return list(vars(thing).values())[:64]


def _tensor(array: torch.Tensor | np.ndarray) -> torch.Tensor:
    with aside():
        return array.detach() if isinstance(array, torch.Tensor) else torch.as_tensor(np.ascontiguousarray(array))


class Arrays:
    """The arrays in sight now, and where the rows of a batch are in them."""

    def __init__(self) -> None:
        self._all = arrays_in_sight()
        self._rows: dict[int, list[int]] = {}

    def _prints(self, array: torch.Tensor) -> list[int]:
        if id(array) not in self._rows:
            self._rows[id(array)] = row_prints(array, most=len(array))
        return self._rows[id(array)]

    def holding(self, batch: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Arrays that hold the rows of a batch and more, with the positions of these rows."""
        rows = row_prints(batch)
        for array in self._all:
            if array.shape[1:] == batch.shape[1:] and len(array) > len(batch):
                places = {row: place for place, row in enumerate(self._prints(array))}
                if len(places) > _DISTINCT * len(array) and all(row in places for row in rows):
                    yield array, torch.tensor([places[row] for row in rows])

    def beside(self, inputs: torch.Tensor, target: torch.Tensor) -> Iterator[torch.Tensor]:
        """Arrays as long as that of the inputs that hold each row of a target at least as often."""
        rows = Counter(row_prints(target))
        for array in self._all:
            alike = len(array) == len(inputs) and array[0].numel() == target[0].numel()
            if alike and array is not inputs and rows <= Counter(self._prints(array)):
                yield array


def larger_than(batches: list[torch.Tensor], arrays: list[torch.Tensor], *, times: int) -> Iterator[torch.Tensor]:
    """Arrays that hold all rows of one of the batches, and many more."""
    beside = [each for each in arrays if len(each) == len(batches[0])]
    indices = [each for each in beside if each.dim() == 1 and each.dtype == torch.int64]
    for array in arrays:
        rows = len(array) >= times * len(batches[0]) and any(is_part(each, array, indices) for each in batches)
        if rows or any(is_of_text(each, array, times) for each in batches):
            yield array


def is_of_text(batch: torch.Tensor, text: torch.Tensor, times: int) -> bool:
    """Is every row of a batch a window of a text that is many times as long?"""
    tokens = text.dim() == 1 and batch.dim() == 2 and not batch.is_floating_point() and not text.is_floating_point()
    if not tokens or batch.shape[1] < _WINDOW or len(text) < times * batch.numel():
        return False
    with aside():
        text, batch = HOST.all_of((text, batch))
        whole = text.to(torch.int64).numpy().tobytes()
        return all(row.numpy().tobytes() in whole for row in batch.to(torch.int64))


def is_part(batch: torch.Tensor, array: torch.Tensor, indices: list[torch.Tensor]) -> bool:
    """Are all rows of a batch from an array, by their values or, if these repeat, by an index in sight?"""
    if batch.shape[1:] != array.shape[1:] or batch.is_floating_point() != array.is_floating_point():
        return False
    with aside():
        array, batch, *indices = HOST.all_of((array, batch, *indices))
        batch = batch.to(array.dtype)
        held = set(prints(array, most=len(array)))
        if len(held) > _DISTINCT * len(array):
            return held.issuperset(prints(batch))
        if len(batch.unique(dim=0)) < FEWEST:
            return False
        inside = (each for each in indices if int(each.min()) >= 0 and int(each.max()) < len(array))
        return torch.equal(array[: len(batch)], batch) or any(torch.equal(array[each], batch) for each in inside)
