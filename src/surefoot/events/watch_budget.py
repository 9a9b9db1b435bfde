"""Budget: how many CPU seconds watching may add to a loop, as a share of the loop's own."""

from __future__ import annotations

import time
from collections.abc import Callable

OVERHEAD = 0.25
"""The share of a script's own CPU seconds that `watch` may add, unless told otherwise."""
ALWAYS = 0.8
"""CPU seconds that looking and measuring may always take, however short the loop is."""
PREPARING = 0.15
"""Of these, the seconds that may be taken before the first model is called."""
_LEAST_OWN = 0.05
"""The loop's own share of the time at least: what is measured of watching is rough."""


class Budget:
    """Compares the CPU seconds that watching has taken with those that are left to the loop itself.

    `now` is the clock and `cpu` the seconds that the process worked, in all of its threads. The smaller one counts: on
    a busy machine a loop works less than it lasts, and with many threads it works more.
    """

    def __init__(
        self,
        share: float,
        *,
        always: float = ALWAYS,
        now: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._share, self._always, self._now, self._cpu = share, always, now, cpu
        self._began, self._began_cpu = now(), cpu()

    def is_spent(self, seconds: float) -> bool:
        """Has watching, which took these seconds so far, used up what it may take?"""
        if seconds <= self._always:
            return False
        lasted = min(self._now() - self._began, self._cpu() - self._began_cpu)
        own = max(lasted - seconds, _LEAST_OWN * lasted)
        return seconds > self._always + self._share * own
