"""Finds evaluated windows of a series whose newest values training windows hold as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.samples import Overlap, SampleFacts
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.samples.loaders import Loaders
from surefoot.torch_inside.modes import aside

_SHORTEST, _LONGEST = 8, 4096
_RUN = 4
"""This many values in a row name a place of a series."""
_MOST_ROWS = 256
_MOST_KNOWN = 1 << 18
_MOST_EVALUATIONS = 64
_MEASURED = 0.05
"""If more than this share of what is evaluated are training windows themselves, another check judges it."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class _Trained:
    """Hashes of the training windows, and of the runs in them."""

    rows: set[int] = field(default_factory=set)
    runs: set[int] = field(default_factory=set)
    repeats: bool = False
    """A run comes twice in a window: the series repeats itself."""


class Windows(Observer):
    """Hashes short runs of values in the windows that models get."""

    after = (Gradients, Loaders)

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._trained: dict[tuple[int, tuple[int, ...]], _Trained] = {}
        """By training and shape of a window."""
        self._seen: list[tuple[nn.Module, Overlap]] = []

    def model_returned(self, model: nn.Module, args: Any, kwargs: Kwargs, output: object) -> None:
        graded = torch.is_grad_enabled()
        if (graded and not self.scene.close) or (not graded and len(self._seen) >= _MOST_EVALUATIONS):
            return
        if not graded and self._loaders.fed_by is not None and self._loaders.fed_by.role == "training":
            return
        given = next((each for each in tensors((args, kwargs)) if _is_window(each)), None)
        if given is None:
            return
        shape, runs = tuple(given.shape[1:]), runs_of(given)
        known = self._trained.setdefault((self.scene.training, shape), _Trained())
        rows = [hash(row.tobytes()) for row in runs]
        if graded:
            known.repeats |= any(len(np.unique(row)) < len(row) for row in runs[:16])
            if len(known.runs) < _MOST_KNOWN:
                known.runs.update(runs.ravel().tolist())
                known.rows.update(rows)
        elif (
            known.rows
            and not known.repeats
            and _ends_vary(given)
            and sum(row in known.rows for row in rows) <= _MEASURED * len(rows)
        ):
            shared = sum(run in known.runs for run in runs[:, -1].tolist())
            self._seen.append((model, Overlap(self.scene.name(model), self.scene.updates, len(rows), shared)))

    def facts(self) -> Iterator[SampleFacts]:
        optimized = self.scene.optimized()
        trained = (each for model, each in self._seen if not optimized.isdisjoint(model.parameters()))
        yield SampleFacts(overlaps=tuple(trained))


def _is_window(tensor: torch.Tensor) -> bool:
    """Is this a batch of windows of floats: samples by time, or samples by time by features?"""
    if not readable(tensor) or tensor.requires_grad or tensor.dtype not in (torch.float32, torch.float64):
        return False
    return tensor.dim() in (2, 3) and len(tensor) >= 2 and _SHORTEST <= tensor.shape[1] <= _LONGEST


def _ends_vary(windows: torch.Tensor) -> bool:
    """Do the last values name a place of a series? Flags and classes at the end of a row are the same in many."""
    with aside():
        ends = (
            HOST.of(windows)[:_MOST_ROWS, -_RUN:].flatten(2) if windows.dim() > 2 else HOST.of(windows)[:, -_RUN:, None]
        )
        return sum(len(end.unique(dim=0)) > 2 for end in ends) > len(ends) / 2


def runs_of(windows: torch.Tensor) -> np.ndarray:
    """A hash of every run of values in a row, window by window."""
    with aside():
        values = HOST.of(windows)[:_MOST_ROWS].float().double().contiguous().numpy().view(np.uint64)
    steps = values.reshape(len(values), values.shape[1], -1)
    with np.errstate(over="ignore"):
        names = np.zeros(steps.shape[:2], np.uint64)
        for feature in range(steps.shape[2]):
            names = (names ^ steps[:, :, feature]) * _ODD
            names ^= names >> np.uint64(29)
        runs = np.zeros((len(names), names.shape[1] - _RUN + 1), np.uint64)
        for place in range(_RUN):
            runs = (runs ^ names[:, place : place + runs.shape[1]]) * _ODD
            runs ^= runs >> np.uint64(31)
    return runs
