"""Finds resumed training whose optimizer has lost its moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import (
    Contents,
    is_optimizer_state,
    is_scheduler_state,
    varying,
)
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprints, held, readable, tensors
from surefoot.checks.facts.saved_state import File, SavedStateFacts
from surefoot.checks.samples.rows import Rows
from surefoot.checks.saved_state.going_on import goes_on
from surefoot.checks.updates.schedules import Schedules
from surefoot.events.callers import caller

_FEWEST = 2
"""Fewer tensors may be equal by chance."""


@dataclass
class _Read:
    """A loaded file of weights without optimizer state."""

    where: str
    prints: set[int]
    counts: bool
    """It says how far training was."""


@dataclass
class _GoneOn:
    """An optimizer without moments that resumes where one with moments stopped."""

    where: str
    trainings: tuple[int, int]
    sure: bool
    """The file or the schedule shows that training resumes. If not, the data must show it."""


class LostMoments(Observer):
    """Finds an optimizer that resumes from weights of an earlier training, saved without moments."""

    after = (Schedules, Rows)
    stays = True

    def __init__(self, scene: Scene, schedules: Schedules, rows: Rows) -> None:
        super().__init__(scene)
        self._schedules, self._rows = schedules, rows
        self._trained: set[int] = set()
        """Hashes of tensors that were saved after an update."""
        self._made: dict[Optimizer, tuple[str, int]] = {}
        """The line that created each optimizer, and the number of updates before."""
        self._read: _Read | None = None
        self._gone_on: list[_GoneOn] = []

    def __enter__(self) -> LostMoments:
        self.follow(Optimizer, "__init__", after=self._makes)
        return self

    def _makes(self, _: None, optimizer: Optimizer, *__: object, **___: object) -> None:
        self._made[optimizer] = caller(), self.scene.updates

    def saving(self, contents: Contents, file: object) -> None:
        if self.scene.updates:
            self._trained |= contents.prints

    def file_loaded(self, contents: Contents) -> None:
        items = (contents.value, *contents.items)
        counts = bool(contents.counts) or any(map(is_scheduler_state, items))
        with_moments = any(map(is_optimizer_state, items))
        self._read = None if with_moments else _Read(caller(), contents.weights.prints & self._trained, counts)

    def update_begins(self, optimizer: Optimizer) -> None:
        if self._read is None or optimizer in self.scene.stepped:
            return
        read, self._read = self._read, None
        own = fingerprints(varying(filter(readable, held(optimizer))))
        if len(own) < _FEWEST or not read.prints.issuperset(own) or _has_moments(optimizer):
            return
        line, training = self._made.get(optimizer, ("", 0))
        others = self._rows.are_others(self.scene.training)
        for other in self.scene.stepped:
            alike = type(other) is type(optimizer) and _has_moments(other) and goes_on(optimizer, other.param_groups)
            there, before = self._made.get(other, ("", 0))
            sure = read.counts or self._schedules.is_midway(optimizer)
            if alike and not others and (sure or (line and line == there)):
                self._gone_on.append(_GoneOn(read.where, (before, training), sure))

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(files=tuple(self._forgotten()))

    def _forgotten(self) -> Iterator[File]:
        for each in self._gone_on:
            if each.sure or self._rows.are_shared(*each.trainings):
                yield File("forgotten-moments", each.where)


def _has_moments(optimizer: Optimizer) -> bool:
    return any(each.numel() > 1 for state in optimizer.state.values() for each in tensors(state))
