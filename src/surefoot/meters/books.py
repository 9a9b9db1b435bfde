"""Books: all meters around a loop, closed at the end of every update."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from surefoot.events.failsafe import Failsafe
from surefoot.events.forked import only_here
from surefoot.events.listener import Listener
from surefoot.events.phases import Phases
from surefoot.events.watch_budget import Budget
from surefoot.meters.flops import FlopsMeter
from surefoot.meters.journal import Journal
from surefoot.meters.memory import MemoryMeter
from surefoot.meters.memory_book import MemoryBook
from surefoot.meters.meter import Meter, Operators, linear_as_ever
from surefoot.meters.tokens import TokensMeter
from surefoot.meters.traffic import TrafficMeter
from surefoot.meters.work import WorkMeter
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage
from surefoot.torch_inside.modes import modes_are_on
from surefoot.world.kernels import AnyKernels, Kernels

if TYPE_CHECKING:
    from typing_extensions import Self


class Books(Listener):
    """Keeps one `Usage` per step: from the end of one update to the end of the next.

    Without `model`, every module with parameters that is called from outside of a module counts as a model. With a
    journal, events are written there instead of being booked. With `work`, every operator is booked, for its time. With
    a `failsafe`, an exception inside a meter ends the measuring but not the loop. With a `budget`, it begins with the
    first forward, because making data can take thousands of operators, and it ends early in a loop whose steps do. It
    also leaves out tokens, traffic, and what kernels allocate in training: for that each distinct call runs twice. With
    `host_apart`, what waits in host memory is no part of the device's.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        kernels: AnyKernels | None = None,
        most_steps: int | None = None,
        journal: Journal | None = None,
        work: bool = False,
        failsafe: Failsafe | None = None,
        budget: Budget | None = None,
        host_apart: bool = False,
    ) -> None:
        self.failsafe = failsafe or Failsafe(on=False, doing="measuring")
        self._budget = budget
        self.phases = Phases(model)
        self.steps: list[Usage] = []
        self.most_steps = most_steps
        self.host_apart = host_apart
        self.ending: torch.optim.Optimizer | None = None
        """The optimizer whose update ends a step, if it is known. Others may update single parameters in backward."""
        self.journal = journal
        wanted = (lambda: True) if budget is None else self._evaluates
        self.memory = MemoryMeter(self.phases, kernels or Kernels(wanted=wanted), journal)
        if host_apart and journal is None:
            self.memory.book.host = MemoryBook(self.phases.segment)
        self.flops = FlopsMeter(self.phases, journal)
        self.tokens = TokensMeter(self.phases, journal)
        self.traffic = TrafficMeter(self.phases, self.flops, journal)
        self.work = WorkMeter(self.phases, journal)
        self.work.over_bus = host_apart
        in_full = [self.traffic, self.tokens] if budget is None else []
        self.meters: list[Meter] = [self.memory, self.flops, *in_full, *([self.work] if work else [])]
        self._operators = Operators(self.meters, shards_seen=self.phases.shards_seen, failsafe=self.failsafe)
        self._entered, self._looking = ExitStack(), ExitStack()
        self._waits, self._thread = budget is not None, threading.get_ident()
        self._updating = 0
        """How many updates have begun inside each other: `step` of a subclass may call that of its optimizer."""
        self._heard_by: dict[Listener, Listener] = {}
        """How each listener is called: through the failsafe."""

    def beside(self, *meters: Meter) -> None:
        """Adds meters that see every event. Their accounts are not part of a step's usage: read them separately."""
        self._operators.meters += meters
        self._listen(*meters)

    def __enter__(self) -> Self:
        self._listen(*self.meters, self)
        self._entered.enter_context(self.phases)
        self._entered.enter_context(self.traffic.streams)
        if not self._waits:
            self._see_operators()
        return self

    def _see_operators(self) -> None:
        self._waits = False
        self._looking.enter_context(linear_as_ever(self._operators))
        self._looking.enter_context(only_here(self._operators))

    def __exit__(self, *_: object) -> None:
        self._looking.close()
        self._entered.close()
        self._forget(*self.meters, self)

    def _listen(self, *listeners: Listener) -> None:
        self._heard_by |= {each: self.failsafe.listener(each) for each in listeners}
        self.phases.listeners += [self._heard_by[each] for each in listeners]

    def _forget(self, *listeners: Listener) -> None:
        gone = [self._heard_by.pop(each) for each in listeners if each in self._heard_by]
        self.phases.listeners = [each for each in self.phases.listeners if each not in gone]

    def seen(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches, and books their tensors as inputs."""
        for batch in batches:
            self.memory.see(batch)
            yield batch

    def close(self) -> Usage:
        """The usage since the books were last closed."""
        self.work.finish()
        if self.journal is not None:
            self.journal.close()
            return Usage()
        works = self.work.works()
        tally = Tally.of(account for meter in self.meters for account in meter.accounts())
        book = self.memory.book
        return Usage(tally, book.peak, book.phase_peaks, book.largest, works, book.timeline)

    def finish(self) -> None:
        """A loop that called a model and made no update, for example inference, counts as one step."""
        if not self.steps and self.phases.models and not self._operators.paused:
            self.steps.append(self.close())

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        self._updating += self._ends_with(optimizer)

    def _ends_with(self, optimizer: torch.optim.Optimizer) -> bool:
        return self.ending is None or optimizer is self.ending

    def update_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._updating -= self._ends_with(optimizer)
        if self._updating > 0:
            return
        self._updating = 0
        if self._operators.paused or not self._ends_with(optimizer):
            return
        self.end_step()

    def end_step(self) -> None:
        """Ends the step here. For a step that makes several updates, its caller knows when."""
        self.steps.append(self.close())
        if (self.most_steps is not None and len(self.steps) >= self.most_steps) or self._is_spent():
            self._stop()

    def forward_begins(self, model: torch.nn.Module) -> None:
        self._updating = 0  # an update that raised an error has no end
        if self._waits and not modes_are_on() and threading.get_ident() == self._thread:
            self._see_operators()  # a mode of the script's own would be left before this one

    def forward_ends(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not self._operators.paused and self._is_spent():
            self._stop()  # in the middle of a long step, which stays unmeasured

    def _evaluates(self) -> bool:
        """Does a model run without gradients? The peak of a script that only does that is always reported."""
        return self.phases.now().name == "evaluate"

    def _is_spent(self) -> bool:
        return self._budget is not None and self._budget.is_spent(self.failsafe.seconds)

    def _stop(self) -> None:
        self._operators.paused = True
        self._forget(*self._operators.meters)
        if self._operators.is_innermost():
            self._looking.close()  # from here on, operators run at full speed
