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

    def __init__(self, losses: Iterable[float] = (), *, window: int = WINDOW) -> None:
        self._last: deque[float] = deque(maxlen=window)
        for loss in losses:
            self.see(loss)

    def see(self, loss: float) -> bool:
        """Whether this loss is a spike."""
        if self.knows and loss > self.limit():
            return True
        self._last.append(loss)
        return False

    @property
    def knows(self) -> bool:
        """Whether enough losses were seen to call one a spike."""
        return len(self._last) >= ENOUGH

    def usual(self) -> float:
        """The median of the last losses."""
        return median(self._last)

    def limit(self) -> float:
        """A loss above this is a spike."""
        middle = self.usual()
        spread = 1.4826 * median(abs(each - middle) for each in self._last)
        return middle + DEVIATIONS * max(spread, 0.02 * abs(middle))
