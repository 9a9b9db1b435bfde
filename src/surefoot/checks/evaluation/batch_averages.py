"""Follows how an evaluation loop averages the numbers of its batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.evaluation import EvaluationFacts, Metric
from surefoot.checks.loop.forwards import Forwards
from surefoot.events.callers import user_lines
from surefoot.source.evaluation_loop import Line, kept_by, loop_around

MOST = 64


@dataclass
class _Batch:
    """One forward without gradients."""

    update: int
    shapes: tuple[tuple[int, ...], ...]
    lines: tuple[tuple[str, int], ...]
    """The running lines, innermost first."""
    means: set[tuple[str, int]] = field(default_factory=set)
    """Lines on which a loss took the mean of this batch."""


class BatchAverages(Observer):
    """Records the forwards of evaluations, with the lines that ran them."""

    after = (Forwards,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._batches: list[_Batch] = []

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not torch.is_grad_enabled() and len(self._batches) < MOST:
            shapes = tuple(tuple(each.shape) for each in tensors((args, kwargs)))
            self._batches.append(_Batch(self.scene.updates, shapes, user_lines()))

    def mean_taken(self) -> None:
        """A loss was averaged over the last evaluated batch."""
        if self._batches and len(self._batches) < MOST:
            self._batches[-1].means.update(user_lines())

    def probed(self) -> Iterator[EvaluationFacts]:
        yield EvaluationFacts(metrics=tuple(self._metrics()))

    def _metrics(self) -> Iterator[Metric]:
        told = set()
        for _, run in itertools.groupby(self._batches, lambda batch: (batch.update, batch.lines)):
            batches = list(run)
            around = loop_around(Line(*each) for each in batches[0].lines) if len(batches) >= 2 else None
            if around is None or around[0] in told:
                continue
            line, loop, scope = around
            told.add(line)
            means = {number for batch in batches for file, number in batch.means if file == line.file}
            unequal = len({batch.shapes for batch in batches}) > 1
            for kept in kept_by(loop, scope, line.file, means):
                if kept.kind == "last" or unequal:
                    yield Metric(kept.kind, kept.name, kept.where, len(batches))
