"""Backwards: counts the backward passes of a step, and those that reduce gradients over ranks."""

from __future__ import annotations

from typing import Any

from surefoot.events.phases import Phases
from surefoot.meters.meter import Meter
from surefoot.meters.traffic import kind_of
from surefoot.records.tally import Account


class BackwardsMeter(Meter):
    """Books `backwards/all`, and `backwards/reduced` for those with an all-reduce."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._backwards = 0
        self._reduced: set[int] = set()

    def backward_begins(self, losses: Any) -> None:
        self._backwards += 1

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if kind_of(func) == "all-reduce" and self.phases.now().name == "backward":
            self._reduced.add(self._backwards)

    def accounts(self) -> list[Account]:
        booked = [Account("backwards/all", self._backwards, "times")]
        if self._reduced:
            booked.append(Account("backwards/reduced", len(self._reduced), "times"))
        self._reduced.clear()
        self._backwards = 0
        return booked
