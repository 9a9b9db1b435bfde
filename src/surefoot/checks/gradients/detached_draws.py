"""Finds samples that are drawn from a model's distribution without gradient and used in the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributions
from torch.distributions import Distribution
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.events.callers import caller


@dataclass
class _Sample:
    """One draw, and whether it was used."""

    line: str
    used: bool = False


class DetachedDraws(Observer):
    """Follows `sample()` into the graph. Policy gradients ask for the probability of a sample: those are skipped."""

    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._marks: WeakNotes[_Sample] = WeakNotes()
        self._used: Counter[str] = Counter()
        self._scored: set[str] = set()

    def __enter__(self) -> DetachedDraws:
        for kind in vars(distributions).values():
            if isinstance(kind, type) and issubclass(kind, Distribution):
                if "sample" in vars(kind):
                    self.follow(kind, "sample", after=self._drawn)
                if "log_prob" in vars(kind):
                    self.follow(kind, "log_prob", before=self._score)
        return self

    def _drawn(self, out: object, source: Distribution, *_: object, **__: object) -> None:
        if self.scene.close and torch.is_grad_enabled() and source.has_rsample and _is_graded(source):
            self._mark(out, _Sample(caller()))

    def _mark(self, found: object, sample: _Sample) -> None:
        for each in tensors(found):
            if each.is_floating_point() and not each.requires_grad:
                self._marks[each] = sample

    def _samples(self, given: object) -> list[_Sample]:
        return [sample for each in tensors(given) if (sample := self._marks.get(each)) is not None]

    def _score(self, _: Distribution, value: object, *__: object, **___: object) -> None:
        self._scored |= {sample.line for sample in self._samples(value)} if self._marks else set()

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Follows a sample into the results of other functions."""
        if not self._marks:
            return
        for sample in self._samples((args, kwargs)):
            sample.used |= any(each.requires_grad for each in tensors(out))
            self._mark(out, sample)

    def update_ends(self, optimizer: Optimizer) -> None:
        self._used.update({sample.line for sample in self._marks.notes() if sample.used})
        self._marks = WeakNotes()

    def facts(self) -> Iterator[GradientFacts]:
        lines = (line for line, count in self._used.items() if count >= 2 and line not in self._scored)
        yield GradientFacts(drawn_without_gradient=tuple(lines))


def _is_graded(source: Any) -> bool:
    """Do the parameters of a distribution, or of its base distribution, have a gradient?"""
    while source is not None:
        if any(each.requires_grad for each in tensors(source)):
            return True
        source = getattr(source, "base_dist", None)
    return False
