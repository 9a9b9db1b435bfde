"""Pace: the seconds of each step of your own loop, by phase, and the time it waits for data loaders."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.meters.clock import ClockMeter
from surefoot.records.tally import Account, Tally

_FOLDED = 64
"""Seconds by phase are added up after this many steps: after each, it would cost more than the clock."""


class Pace(Listener):
    """Counts updates; times those after the first `skipped`, from the end of one update to the end of the next."""

    def __init__(self, phases: Phases, *, skipped: int, now: Callable[[], float] = time.perf_counter) -> None:
        self.phases, self.skipped, self.now = phases, skipped, now
        self.updates = 0
        self.step_seconds: list[float] = []
        self.data_seconds: float | None = None
        """Of all timed steps; None where no loader was seen."""
        self._clock = ClockMeter(phases, now=now)
        self._spent = Tally()
        self._last = 0.0

    def batch_fetched(self, seconds: float) -> None:
        if self.updates >= self.skipped:
            self.data_seconds = (self.data_seconds or 0.0) + seconds

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self.updates += 1
        moment = self.now()
        if self.updates == self.skipped:
            self._clock = ClockMeter(self.phases, now=self.now)
            self.phases.listeners.append(self._clock)
        elif self.updates > self.skipped:
            self.step_seconds.append(moment - self._last)
            self._clock.step_ends()
            if len(self.step_seconds) % _FOLDED == 0:
                self._fold()
        self._last = moment

    def _fold(self) -> None:
        self._spent += Tally.of(self._clock.steps())

    def mean(self) -> Tally:
        """The mean seconds of a step, by phase."""
        self._fold()
        timed = max(1, len(self.step_seconds))
        return Tally.of(Account(each.name, each.amount / timed, each.unit) for each in self._spent.accounts)

    def mean_data_seconds(self) -> float | None:
        """The mean seconds that a step waits for data loaders."""
        return None if self.data_seconds is None else self.data_seconds / max(1, len(self.step_seconds))
