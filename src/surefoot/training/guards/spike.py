"""Spike: a loss that jumps far above the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

WINDOW, ENOUGH, DEVIATIONS = 64, 16, 10.0


class Spikes:
    """A loss is a spike if it lies 10 robust standard deviations above the median of the last 64 finite ones.

    The deviation is 1.4826 times the median distance from the median, and at least 2% of the median. Without this
    minimum, any change would be a spike when losses barely move. The first 16 losses are never spikes. A spike is not
    added to the last 64.
    """

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self._last: deque[float] = deque(maxlen=WINDOW)
        for loss in losses:
            self.see(loss)

    def see(self, loss: float) -> bool:
        """Whether this loss is a spike."""
        if len(self._last) >= ENOUGH and loss > self._limit():
            return True
        self._last.append(loss)
        return False

    def _limit(self) -> float:
        middle = median(self._last)
        spread = 1.4826 * median(abs(each - middle) for each in self._last)
        return middle + DEVIATIONS * max(spread, 0.02 * abs(middle))
