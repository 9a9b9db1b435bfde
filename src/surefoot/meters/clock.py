"""Clock: seconds by phase. It follows only the phases, so it costs a few calls per step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from surefoot.events.listener import Segment
from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter
from surefoot.records.tally import Account


class ClockMeter(Meter):
    """Books `seconds/PHASE`. `now` is the clock; tests pass their own."""

    def __init__(self, phases: Phases, *, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._running, self._since = phases.segment, now()
        self._spent: dict[Segment, float] = defaultdict(float)

    def entered(self, segment: Segment) -> None:
        moment = self.now()
        self._spent[self._running] += moment - self._since
        self._running, self._since = segment, moment

    def accounts(self) -> list[Account]:
        self.entered(self._running)
        booked = [Account(f"seconds/{each.name}", spent, "seconds") for each, spent in self._spent.items()]
        self._spent.clear()
        return booked
