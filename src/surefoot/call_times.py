"""Call times: how long each distinct operator call takes on this machine, timed once on made-up data.

Operands are taken from several sets in turn, so that a call does not find the last one's results in the cache, as it
seldom would in a step; its results are allocated anew each time, as they are in a step.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from surefoot.kernels import made_up, reach, signature
from surefoot.trees import map_tensors, tensors_in

COLD_BYTES = 64 << 20
"""Sets of operands are made until they take so much together."""

SECONDS = 0.02
ROUNDS = 5


class CallTimes:
    """Remembers the seconds of each distinct call. `clock` is the processor's, which neighbours disturb less."""

    def __init__(self, *, clock: Callable[[], float] = time.process_time, limit_bytes: int = 4 << 30) -> None:
        self.clock, self.limit_bytes = clock, limit_bytes
        self.seconds: dict[str, float] = {}
        """By name of the call; missing where it could not be run."""
        self._names: dict[Any, str] = {}

    def name(self, func: Any, args: Any, kwargs: Any) -> str:
        """The name of a call, which is timed when it is first met."""
        key = func, signature(args), signature(kwargs)
        if key not in self._names:
            name = self._names[key] = f"{func.overloadpacket.__name__}#{len(self._names)}"
            seconds = self._timed(func, args, kwargs)
            if seconds is not None:
                self.seconds[name] = seconds
        return self._names[key]

    def _timed(self, func: Any, args: Any, kwargs: Any) -> float | None:
        size = sum(map(reach, tensors_in([args, kwargs])))
        if size > self.limit_bytes:
            return None
        with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
            sets = [map_tensors(made_up, (args, kwargs)) for _ in range(max(1, min(16, COLD_BYTES // max(size, 1))))]
            try:
                func(*sets[0][0], **sets[0][1])
            except RuntimeError:  # the made-up values do not suit this operator
                return None
            turns, kept = cycle(sets), deque[Any](maxlen=len(sets))
            return statistics.median(self._round(func, turns, kept) for _ in range(ROUNDS))

    def _round(self, func: Any, turns: Any, kept: deque[Any]) -> float:
        calls, began = 0, self.clock()
        while True:
            args, kwargs = next(turns)
            kept.append(func(*args, **kwargs))
            calls += 1
            spent = self.clock() - began
            if spent > SECONDS / ROUNDS:
                return spent / calls
