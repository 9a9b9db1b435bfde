"""Clocks: seconds by phase, of the host or of a device. They follow only the phases: a few calls per step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Any

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
        self._ended = 0
        """How many segments had begun when the last step ended."""

    def entered(self, segment: Segment) -> None:
        moment = self.now()
        self._spent[self._running] += moment - self._since
        self._running, self._since = segment, moment

    def step_ends(self) -> None:
        """A step ends here. Costs less than `accounts`."""
        self.entered(self._running)
        self._ended = len(self._spent)

    def accounts(self) -> list[Account]:
        self.step_ends()
        return self.steps()

    def steps(self) -> list[Account]:
        """The accounts up to the end of the last step."""
        done = list(islice(self._spent, self._ended))
        self._ended = 0
        return [Account(f"seconds/{each.name}", self._spent.pop(each), "seconds") for each in done]


class DeviceClockMeter(Meter):
    """Books `seconds/PHASE` of a device that works behind the host: sets marks, and reads them when all is done."""

    def __init__(
        self, phases: Phases, *, mark: Callable[[], Any], seconds_between: Callable[[Any, Any], float]
    ) -> None:
        self.mark, self.seconds_between = mark, seconds_between
        self._marks: list[tuple[Segment, Any]] = [(phases.segment, mark())]

    def entered(self, segment: Segment) -> None:
        self._marks.append((segment, self.mark()))

    def accounts(self) -> list[Account]:
        self.entered(self._marks[-1][0])
        spent: dict[Segment, float] = defaultdict(float)
        for (segment, began), (_, ended) in zip(self._marks, self._marks[1:], strict=False):
            spent[segment] += self.seconds_between(began, ended)
        self._marks = self._marks[-1:]
        return [Account(f"seconds/{each.name}", seconds, "seconds") for each, seconds in spent.items()]
