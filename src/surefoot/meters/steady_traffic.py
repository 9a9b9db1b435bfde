"""Steady traffic: the collectives of one step of a run, to compare with the plan in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

from surefoot.events.phases import Phases
from surefoot.meters.flops import FlopsMeter
from surefoot.meters.meter import Operators, linear_as_ever
from surefoot.meters.traffic import TrafficMeter
from surefoot.records.tally import Tally

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

STEADY = 2
"""The step that is observed. The first step differs from the others, in a plan too."""


class SteadyTraffic:
    """Wraps every step of a process and observes the second. It changes no numbers."""

    def __init__(self, model: nn.Module, mesh: DeviceMesh | None, *, on: bool = True) -> None:
        self._model, self._mesh, self._on, self._taken = model, mesh, on, 0
        self.tally = Tally()

    @contextmanager
    def around_step(self) -> Iterator[None]:
        self._taken += 1
        if not self._on or self._taken != STEADY:
            yield
            return
        phases = Phases(self._model)
        flops = FlopsMeter(phases)
        traffic = TrafficMeter(phases, flops)
        traffic.know(self._mesh)
        phases.listeners += [flops, traffic]
        operators = Operators([flops, traffic], shards_seen=phases.shards_seen)
        with phases, traffic.streams, linear_as_ever(operators), operators:
            yield
        self.tally = Tally.of(traffic.accounts())
