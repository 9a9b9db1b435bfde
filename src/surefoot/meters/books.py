"""Books: all meters around a loop, closed at the end of every update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch

from surefoot.kernels import Kernels
from surefoot.meters.flops import FlopsMeter
from surefoot.meters.memory import MemoryMeter
from surefoot.meters.meter import Meter, Operators, linear_as_ever
from surefoot.meters.tokens import TokensMeter
from surefoot.phases import Listener, Phases
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage


class Books(Listener):
    """Keeps one `Usage` per step: from the end of one update to the end of the next.

    Without a model, every module with parameters that is called from outside a module is one.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        kernels: Kernels | None = None,
        most_steps: int | None = None,
    ) -> None:
        self.phases = Phases(model)
        self.steps: list[Usage] = []
        self.most_steps = most_steps
        self.memory = MemoryMeter(self.phases, kernels or Kernels())
        self.flops = FlopsMeter(self.phases)
        self.meters: list[Meter] = [self.memory, self.flops, TokensMeter(self.phases)]
        self._operators = Operators(self.meters)
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        self.phases.listeners += [*self.meters, self]
        self._entered.enter_context(self.phases)
        self._entered.enter_context(linear_as_ever(self._operators))
        self._entered.enter_context(self._operators)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def seen(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches as they come, their tensors booked as inputs."""
        for batch in batches:
            self.memory.see(batch)
            yield batch

    def close(self) -> Usage:
        """What was used since the books were last closed."""
        tally = Tally.of(account for meter in self.meters for account in meter.accounts())
        return Usage(tally, self.memory.peak, self.memory.phase_peaks, self.memory.largest)

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        if self._operators.paused:
            return
        self.steps.append(self.close())
        if self.most_steps is not None and len(self.steps) >= self.most_steps:
            self._operators.paused = True
            self.phases.listeners = [each for each in self.phases.listeners if each not in self.meters]
