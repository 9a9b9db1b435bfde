"""Rows: the samples that enter models, whatever brought them, told by their values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn

from surefoot.checks.evidence import Shown
from surefoot.phases import aside
from surefoot.witness.loaders import Loaders
from surefoot.witness.scene import Part, Scene, readable, tensors

MOST_ROWS = 512
MOST_EVALUATIONS = 64
"""So many forwards without gradients are read, whenever they come."""
_FRAMES = 32


class Rows(Part):
    """Which samples were trained on, and which of them are evaluated."""

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self.shown: list[tuple[nn.Module, Shown]] = []
        self.part_of = 0
        """How many rows the arrays of the loop hold of which one batch is used over and over; 0 where none is."""
        self._trained: set[int] = set()
        self._evaluated: set[int] = set()
        self._evaluated_rows: set[int] = set()
        self._last: tuple[int, ...] = ()
        self._repeats = 0

    def model_returned(self, model: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        graded = torch.is_grad_enabled()
        if (graded and not self.scene.close) or (not graded and len(self.shown) >= MOST_EVALUATIONS):
            return
        if not graded and self._loaders.fed_by is not None and self._loaders.fed_by.role == "training":
            return  # the training set is measured, on purpose
        entered = _of_samples(tensors((args, kwargs)))
        if sum(each[0].numel() for each in entered) < 4:
            return
        columns = [prints(each) for each in entered]
        rows = [hash(each) for each in zip(*columns, strict=True)]
        if not graded:
            self._evaluated_rows.update(rows)
            shared = sum(each in self._trained for each in rows)
            names = not any(each.is_floating_point() for each in entered)
            seen = Shown(self.scene.name(model), self.scene.updates, len(rows), shared, len(set(rows)), names)
            self.shown.append((model, seen))
            self._evaluated.update(columns[0])
            return
        self._trained.update(rows)
        self._repeats = self._repeats + 1 if tuple(rows) == self._last else 0
        self._last = tuple(rows)
        if self._repeats == 6:
            self.part_of = self._larger(entered[0])

    def _larger(self, entered: torch.Tensor) -> int:
        """The length of an array of the loop that holds these samples and three times as many that are never used."""
        rows, shape = set(prints(entered)), tuple(entered.shape[1:])
        for array in _arrays_in_sight():
            if tuple(array.shape[1:]) == shape and 4 * len(rows) <= len(array) <= 16 * MOST_ROWS:
                held = set(prints(torch.as_tensor(array).to(entered.dtype), most=len(array)))
                if rows <= held and not held & self._evaluated:
                    return len(array)
        return 0

    def seen(self) -> Iterator[Shown]:
        """What trained models were shown; nothing where the whole training set is measured, on purpose."""
        if len(self._trained & self._evaluated_rows) > 0.9 * len(self._trained):
            return
        optimized = self.scene.optimized()
        for model, shown in self.shown:
            if not optimized.isdisjoint(model.parameters()):
                yield shown


def _of_samples(given: Iterator[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs that have a row for each sample, the largest first."""
    rows = [each for each in given if readable(each) and each.dim() and len(each)]
    rows.sort(key=lambda each: -each.numel())
    return [each for each in rows if len(each) == len(rows[0])]


def prints(values: torch.Tensor, most: int = MOST_ROWS) -> list[int]:
    """A hash of each row."""
    with aside():
        rows = values.detach()[:most].cpu().reshape(min(most, len(values)), -1)
        rows = rows.clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy()
    return [xxhash.xxh3_64_intdigest(np.ascontiguousarray(row)) for row in rows]


def _arrays_in_sight() -> Iterator[Any]:
    """The tensors and arrays among the variables of the functions that are running, and in containers of them."""
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("torch", "surefoot"):
            for value in list(frame.f_locals.values()):
                items = (
                    value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
                )
                yield from (
                    each for each in list(items)[:64] if isinstance(each, torch.Tensor | np.ndarray) and each.ndim
                )
        frame = frame.f_back
