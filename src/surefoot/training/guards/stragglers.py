"""Stragglers: finds a rank whose own work takes much longer than that of the others."""

from __future__ import annotations

from collections import deque
from statistics import median

STEPS = 32
"""How many of the last steps are compared."""

TIMES = 1.5
LEAST_SHARE = 0.1
"""A straggler's own work takes `TIMES` that of the others, and at least this share of a step more."""


class Stragglers:
    """Compares the seconds that each rank spends on its own work."""

    def __init__(self) -> None:
        self._own: deque[list[float]] = deque(maxlen=STEPS)
        self._seconds: deque[float] = deque(maxlen=STEPS)

    def see(self, seconds: float, own: list[float]) -> str:
        """The message after this step, or an empty string. A message comes at most once in `STEPS` steps."""
        self._own.append(own)
        self._seconds.append(seconds)
        if len(self._own) < STEPS:
            return ""
        usual = [median(each) for each in zip(*self._own, strict=True)]
        rank = max(range(len(usual)), key=usual.__getitem__)
        others = median(each for number, each in enumerate(usual) if number != rank)
        if usual[rank] < TIMES * others or usual[rank] - others < LEAST_SHARE * median(self._seconds):
            return ""
        self._own.clear()
        self._seconds.clear()
        return f"rank {rank} computes {usual[rank]:.3g} s in each step, the others {others:.3g} s: they wait for it"
