"""Rounds: the seconds of a call in the fastest of several rounds, and how much of it other programs took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from surefoot.errors import WorldError

UNDISTURBED, LEAST_SHARE = 0.9, 0.25
"""Of a round, the time in which this thread had a processor: from where on a round counts as undisturbed, and below
which no figure is kept. The figure would be more than four times too low."""
MOST_TIMES = 8
"""As long as rounds are disturbed, up to this many times as many are run."""
ROUND_SECONDS = 0.05


@dataclass
class Rounds:
    """Times calls. `clock` counts all seconds, `own_clock` those in which this thread had a processor."""

    rounds: int
    clock: Callable[[], float] = time.perf_counter
    own_clock: Callable[[], float] = time.thread_time
    shares: dict[str, float] = field(default_factory=dict)
    """By figure, the share of its fastest round in which this thread had a processor."""

    def fastest(self, name: str, run: Callable[[], object]) -> float:
        """The seconds of one run in the fastest round. Refuses a figure that was mostly spent waiting."""
        run()
        found: list[tuple[float, float]] = []
        while sum(share >= UNDISTURBED for _, share in found) < self.rounds and len(found) < MOST_TIMES * self.rounds:
            found.append(self._round(run))
        seconds, share = min(found)
        if share < LEAST_SHARE:
            raise WorldError(
                f"this machine is too busy to be measured: in the fastest of {len(found)} rounds of {name}, surefoot "
                f"had a processor for {share:.0%} of the time, so nothing was saved; stop other programs, or set "
                "OMP_NUM_THREADS to the number of free cores, and measure again"
            )
        self.shares[name] = min(share, self.shares.get(name, 1.0))
        return seconds

    def notes(self) -> tuple[str, ...]:
        """What the reader of the figures must know; empty if nothing disturbed them."""
        name = min(self.shares, key=self.shares.__getitem__, default="")
        if not name or self.shares[name] >= UNDISTURBED:
            return ()
        share = self.shares[name]
        return (f"other programs ran: {name} had a processor for {share:.0%} of the time, so idle rates are higher",)

    def _round(self, run: Callable[[], object]) -> tuple[float, float]:
        """The seconds of one run, and the share of them in which this thread had a processor."""
        runs, began, own = 0, self.clock(), self.own_clock()
        while (spent := self.clock() - began) < ROUND_SECONDS:
            run()
            runs += 1
        return spent / runs, (self.own_clock() - own) / spent
