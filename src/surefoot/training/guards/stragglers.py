"""Stragglers: a rank that needs much longer than the others for what it does by itself."""

from __future__ import annotations

from collections import deque
from statistics import median

STEPS = 32
"""How many steps are looked at."""

TIMES = 1.5
LEAST_SHARE = 0.1
"""Its work of its own takes so many times the others', and so much of the step more."""


class Stragglers:
    """Told the seconds of every rank's own work after every step."""

    def __init__(self) -> None:
        self._own: deque[list[float]] = deque(maxlen=STEPS)
        self._seconds: deque[float] = deque(maxlen=STEPS)

    def see(self, seconds: float, own: list[float]) -> str:
        """What is to be said after this step, in words; once in `STEPS` steps at most."""
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
        return (
            f"rank {rank} works {usual[rank]:.3g} s of each step by itself, the others {others:.3g} s: they wait for it"
        )
