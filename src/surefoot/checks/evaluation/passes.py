"""Records which samples an evaluation without a DataLoader reads in each pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, own, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.evaluation import EvaluationFacts, Pass
from surefoot.checks.samples.arrays_in_sight import FEWEST, Arrays, row_prints
from surefoot.checks.samples.loaders import Loaders
from surefoot.events.callers import user_lines

_MOST = 64
_RARE = 1 / 3
"""If forwards follow more than this share of the updates, they belong to the step, like those of a teacher."""

_DISTINCT = 0.9
"""The share of samples of an evaluation that must be distinct. States of a game repeat often."""


@dataclass
class _Line:
    """The evaluations of one line."""

    model: str
    update: int
    batches: list[torch.Tensor] = field(default_factory=list)
    """The inputs of the first evaluation."""
    updates: set[int] = field(default_factory=set)
    """The update counts at which later evaluations ran."""
    reordered: bool = False
    left_out: int = 0


class Passes(Observer):
    """Records the samples of evaluations without a loader."""

    def __init__(self, scene: Scene, loaders: Loaders) -> None:
        super().__init__(scene)
        self._loaders = loaders
        self._lines: dict[tuple[tuple[str, int], ...], _Line] = {}
        self._read = 0

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if torch.is_grad_enabled() or self._loaders.fed_by is not None or self._read >= _MOST:
            return
        given = [each for each in tensors((args, kwargs)) if readable(each) and each.dim() and len(each)]
        largest = max(given, key=lambda each: each.numel(), default=None)
        if largest is None or largest[0].numel() < FEWEST or not self.scene.updates:
            return
        self._read += 1
        line = self._lines.setdefault(user_lines(), _Line(self.scene.name(model), self.scene.updates))
        if line.update == self.scene.updates:
            line.batches.append(own(largest))
            return
        if not line.updates:
            self._again(line, largest)
        line.updates.add(self.scene.updates)

    def _again(self, line: _Line, first: torch.Tensor) -> None:
        """At the second evaluation, compares its first samples with the first evaluation, and looks for rows never
        read.
        """
        rows, known = row_prints(first), [row_prints(each) for each in line.batches]
        before = {row for batch in known for row in batch}
        distinct = len(before) >= max(FEWEST, _DISTINCT * sum(map(len, known)))
        again = sum(row in before for row in rows)
        line.reordered = rows != known[0] and distinct and again >= max(2, len(rows) / 2)
        if {each.shape for each in line.batches} == {first.shape} and len(first) > 1:
            line.left_out = _left_out(torch.cat(line.batches), len(first))

    def facts(self) -> Iterator[EvaluationFacts]:
        yield EvaluationFacts(passes=tuple(self._passes()))

    def _passes(self) -> Iterator[Pass]:
        for line in self._lines.values():
            if len(line.updates) + 1 <= max(1, _RARE * self.scene.updates):
                yield Pass(line.model, line.reordered, line.left_out)


def _left_out(read: torch.Tensor, batch: int) -> int:
    """The number of rows of an array after those that were read from its start, if fewer than a batch; else 0."""
    for array, places in Arrays().holding(read):
        if torch.equal(places, torch.arange(len(read), device=places.device)) and len(array) - len(read) < batch:
            return len(array) - len(read)
    return 0
