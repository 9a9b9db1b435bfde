"""Follows counters in the user's objects across a resume."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents, Counts
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.saved_state import HeldCounter, SavedStateFacts
from surefoot.events.callers import caller, is_user, near_frames
from surefoot.source.frames import variables
from surefoot.source.restored_counters import counters_restored

_FEWEST = 2
"""The number of updates that must show how a counter grows."""


@dataclass
class _Counter:
    """An attribute that a file can restore."""

    holder: weakref.ref[Any]
    attribute: str
    key: str
    first: int
    """Its value in the first update. `last` is its value in the last one."""
    last: int
    updates: int = 1
    steady: bool = True
    """It has grown by at most one from update to update."""

    @property
    def now(self) -> Any:
        return getattr(self.holder(), self.attribute, None)


class ObjectCounters(Observer):
    """If a counter has grown since the last update when a file is saved, it counts the next update."""

    stays = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counters: dict[Optimizer, list[_Counter]] = {}
        self._latest: list[_Counter] = []
        """The counters of the last update."""
        self._next: dict[tuple[str, str, int], set[int]] = {}
        """By attribute, key and saved number: the values in the next update without an interruption."""
        self._loaded: tuple[str, Counts, int] | None = None
        self._going_on: dict[Optimizer, tuple[str, Counts, int]] = {}
        self.off: list[HeldCounter] = []

    def __enter__(self) -> ObjectCounters:
        self.follow(Optimizer, "load_state_dict", after=self._restores)
        return self

    def saving(self, contents: Contents, file: object) -> None:
        for each in self._latest:
            number, now = contents.counts.get(each.key), each.now
            if number is not None and type(now) is int:
                grown = now == each.last + 1 and each.steady and each.updates >= _FEWEST
                self._next.setdefault((each.attribute, each.key, number), set()).add(now if grown else -1)

    def file_loaded(self, contents: Contents) -> None:
        if self._next and (counts := contents.counts):
            self._loaded = caller(), counts, self.scene.updates

    def _restores(self, _: object, optimizer: Optimizer, *__: object, **___: object) -> None:
        """Training resumes if the optimizer is new."""
        if self._loaded and self._loaded[2] == self.scene.updates and not self.scene.updates_of(optimizer):
            self._going_on[optimizer] = self._loaded

    def update_begins(self, optimizer: Optimizer) -> None:
        known = self._counters.get(optimizer)
        if known is None:
            self._latest = self._counters[optimizer] = _in_sight()
            self._compare(*self._going_on.pop(optimizer, ("", {}, 0)))
            return
        self._latest = known
        for each in known:
            now = each.now
            each.steady = each.steady and type(now) is int and now - each.last in (0, 1)
            each.last, each.updates = now, each.updates + 1

    def _compare(self, where: str, counts: Counts, _: int) -> None:
        """Compares counters in the first update after loading. A counter that restarts is meant to."""
        for each in self._latest if counts else ():
            numbers = self._next.get((each.attribute, each.key, counts.get(each.key, -1)), set())
            alike = (old for known in self._counters.values() for old in known if old.attribute == each.attribute)
            begun = min((old.first for old in alike if old is not each), default=0)
            if len(numbers) == 1 and numbers.isdisjoint((-1, each.first)) and each.first != begun:
                wanted = next(iter(numbers))
                self.off.append(HeldCounter(where, each.key, counts[each.key], each.attribute, each.first, wanted))

    def facts(self) -> Iterator[SavedStateFacts]:
        yield SavedStateFacts(held_counters=tuple(self.off))


def _in_sight() -> list[_Counter]:
    """The counters of objects whose methods are running."""
    found = {}
    for frame in near_frames():
        if is_user(frame) and (names := counters_restored(frame.f_code.co_filename)):
            holder = variables(frame).get("self")
            for attribute, key in names.items():
                value = getattr(holder, "__dict__", {}).get(attribute)
                if type(value) is int:
                    with suppress(TypeError):  # not every object supports weak references
                        found[id(holder), attribute] = _Counter(weakref.ref(holder), attribute, key, value, value)
    return list(found.values())
