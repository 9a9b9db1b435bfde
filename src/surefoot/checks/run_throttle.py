"""Watches a few steps of a long run, so that watching costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.optim import Optimizer

from surefoot.checks.watcher import Watcher
from surefoot.events.phases import Phases
from surefoot.records.finding import Finding

FIRST = 3
"""The number of steps watched at the start of a process. After that, only steps that are powers of ten are watched."""


class RunThrottle:
    """Watches some steps of a model and its optimizer. It runs no probes and changes no numbers."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, *, on: bool = True) -> None:
        self._phases = Phases()
        self._phases.find(model)
        self._watcher = Watcher(self._phases, optimizer, failsafe=True)
        self.failsafe = self._watcher.scene.failsafe
        self._on, self._taken, self._looked = on, 0, False
        self.found: dict[str, Finding] = {}

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Wraps one step. Most steps are not watched."""
        self._taken += 1
        if not self._on or not is_looked_at(self._taken, step):
            yield
            return
        with self._phases, self._watcher:
            yield
        self._looked = True

    def new_findings(self) -> list[Finding]:
        """Findings of the last watched step that are new."""
        if not self._looked:
            return []
        self._looked = False
        found = self._watcher.findings(recipe="", probes=False).findings
        new = [each for each in found if each.check not in self.found and each.severity != "info"]
        self.found.update({each.check: each for each in new})
        return new


def is_looked_at(taken: int, step: int) -> bool:
    """Is this step watched, in a process that has taken `taken` steps?"""
    power_of_ten = step >= 10 and set(str(step)[1:]) == {"0"} and str(step)[0] == "1"
    return taken <= FIRST or power_of_ten
