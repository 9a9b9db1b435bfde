"""Outputs: what the models of an evaluation return, to be compared between its copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from surefoot.debug.probe.changes import hash_of
from surefoot.debug.probe.leaves import leaves
from surefoot.debug.probe.order import Change
from surefoot.trees import tensors_in

FILE = "outputs.pt"
MOST_CALLS = 500
"""Calls whose results are compared."""
MOST_BYTES = 1 << 26
"""Of results that are kept, to be compared row by row."""
TOLERANCE = 1e-4
"""Rows that differ by less, relative to the largest value, may be rounded otherwise."""
_NORMALISES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class HasChange(Protocol):
    """What this needs to know of the loop."""

    @property
    def is_copy(self) -> bool:
        """Is this process a copy of the last evaluation?"""
        ...


class Outputs:
    """Hashes of what the outermost calls return; of the first one also the tensors, module by module."""

    def __init__(self, folder: str) -> None:
        self.hashes: list[str] = []
        self.mixed: list[str] = []
        self.follows_modules = False
        self._file = Path(folder) / FILE
        self._keeps = self._compares = False
        self._first: list[tuple[str, list[torch.Tensor]]] = []
        self._bytes = self._calls = 0

    def starts(self, change: Change, *, keeps: bool) -> None:
        """A copy begins. The first keeps results; one with a disturbed sample compares its own with them."""
        self._keeps, self._compares = keeps, change.kind == "sample"

    def begins(self, loop: HasChange, samples: int) -> None:
        """A model is called."""
        self.follows_modules = loop.is_copy and not self._calls and (self._keeps or self._compares)

    def inner(self, module: nn.Module, out: Any) -> None:
        """A module inside the first call has returned."""
        self._take(type(module).__name__, out)

    def _take(self, name: str, out: Any) -> None:
        tensors = [each.detach().clone() for each in tensors_in(list(leaves(out).values()))]
        self._bytes += sum(each.nbytes for each in tensors)
        if self._bytes <= MOST_BYTES:
            self._first.append((name, tensors))

    def ends(self, module: nn.Module, out: Any, samples: int) -> None:
        """A model has returned."""
        self._calls += 1
        if len(self.hashes) < MOST_CALLS:
            self.hashes.append(hash_of(out))
        if self.follows_modules:
            self._take(f"the model ({type(module).__name__})", out)
            self.follows_modules = False
            if self._keeps:
                torch.save(self._first, self._file)
            else:
                self.mixed = self._mixed(module, samples)

    def _mixed(self, model: nn.Module, samples: int) -> list[str]:
        """What happened to the other samples' outputs: `apart`, or the modules after which they differ."""
        if any(isinstance(each, _NORMALISES) and each.training for each in model.modules()):
            return ["batch statistics"]
        if not self._file.exists():
            return []
        before = torch.load(self._file, weights_only=True)
        if [name for name, _ in before] != [name for name, _ in self._first]:
            return []
        told = [
            (name, _rows_changed(one, other, samples))
            for (name, one), (_, other) in zip(before, self._first, strict=True)
        ]
        if told[-1][1] is None or told[-1][1] == "nothing":
            return []
        if told[-1][1] != "others":
            return ["apart"]
        return ["others", *(name for name, rows in told if rows == "others")]


def _rows_changed(one: list[torch.Tensor], other: list[torch.Tensor], samples: int) -> str | None:
    """Which samples' results differ: `nothing`, the `first` one's or those of `others`. None if that cannot be told."""
    found = None
    for here, there in zip(one, other, strict=False):
        axes = [axis for axis, size in enumerate(here.shape) if size == samples]
        if here.shape != there.shape or len(axes) != 1 or not here.is_floating_point():
            continue
        apart = (here - there).abs().movedim(axes[0], 0).reshape(samples, -1)
        rows = apart.max(dim=1).values > TOLERANCE * float(here.abs().max() or 1)
        if bool(rows[1:].any()):
            return "others"
        found = "first" if bool(rows[0]) or found == "first" else "nothing"
    return found
