"""Collectives: how many of them a step calls, and in how many of its backwards gradients are reduced."""

from __future__ import annotations

from collections import Counter
from typing import Any

from surefoot.meters.meter import Meter
from surefoot.phases import Phases, Segment
from surefoot.records.tally import Account

NAMESPACES = ("c10d", "_c10d_functional")


class CollectivesMeter(Meter):
    """Books `collectives/PHASE/NAME`, `backwards/all` and, of these, `backwards/reduced`: those with an all-reduce."""

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self._counted: Counter[tuple[Segment, str]] = Counter()
        self._backwards = 0
        self._reduced: set[int] = set()

    def backward_begins(self, losses: Any) -> None:
        self._backwards += 1

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func.namespace not in NAMESPACES:
            return
        segment, name = self.phases.now(), func.overloadpacket.__name__.strip("_")
        self._counted[segment, name] += 1
        if segment.name == "backward" and name.replace("_", "").startswith("allreduce"):
            self._reduced.add(self._backwards)

    def accounts(self) -> list[Account]:
        booked = [Account(f"collectives/{each.name}/{name}", n, "times") for (each, name), n in self._counted.items()]
        booked.append(Account("backwards/all", self._backwards, "times"))
        if self._reduced:
            booked.append(Account("backwards/reduced", len(self._reduced), "times"))
        self._counted.clear()
        self._reduced.clear()
        self._backwards = 0
        return booked
