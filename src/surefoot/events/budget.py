"""Budget: how many seconds watching may add to a loop, as a share of the loop's own seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

OVERHEAD = 0.25
"""The share of a script's own time that `watch` may add, unless told otherwise."""
ALWAYS = 1.0
"""Seconds that watching may always take, however short the loop is. Most loops show their bugs in less."""


_MOST_STRETCH = 10.0


class Budget:
    """Compares the seconds that watching has taken with those that are left to the loop itself.

    `now` is the clock. On a busy machine it runs faster than `cpu`, the seconds that this thread worked: then what may
    always be taken is stretched, so that as much is looked at as on an idle one.
    """

    def __init__(
        self,
        share: float,
        *,
        always: float = ALWAYS,
        now: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._always, self._now, self._cpu = share, always, now, cpu
        self._began, self._began_cpu = now(), cpu()

    def is_spent(self, seconds: float) -> bool:
        """Has watching, which took these seconds so far, used up what it may take?"""
        lasted, worked = self._now() - self._began, self._cpu() - self._began_cpu
        stretch = min(_MOST_STRETCH, max(1.0, lasted / max(worked, 1e-3)))
        return seconds > stretch * self._always + self._share * max(0.0, lasted - seconds)
