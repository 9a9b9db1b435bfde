"""Follows counters in the user's objects across a resume."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from surefoot.checks.engine.file_contents import Contents, Counts
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.saved_state import HeldCounter
from surefoot.checks.source.restored_counters import counters_restored
from surefoot.events.callers import caller, is_user, near_frames, variables

_FEWEST = 2
"""So many updates must have shown how a counter grows."""


@dataclass
class _Counter:
    """An attribute that a file can restore."""

    holder: weakref.ref[Any]
    attribute: str
    key: str
    first: int
    """What it was in the first update, and in the last."""
    last: int
    updates: int = 1
    steady: bool = True
    """From one update to the next it has grown by one at most."""

    @property
    def now(self) -> Any:
        return getattr(self.holder(), self.attribute, None)


class ObjectCounters(Observer):
    """A counter that has grown since the last update, when a file is saved, is that of the next update."""

    stays = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counters: dict[Optimizer, list[_Counter]] = {}
        self._latest: list[_Counter] = []
        """Those of the last update."""
        self._next: dict[tuple[str, str, int], set[int]] = {}
        """By attribute, name in the file and number in the file: the numbers of the next updates, had it gone on."""
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
        """Training goes on, if the optimizer is a new one."""
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
        """The first update after a file. A counter that begins anew is meant to."""
        for each in self._latest if counts else ():
            numbers = self._next.get((each.attribute, each.key, counts.get(each.key, -1)), set())
            alike = (old for known in self._counters.values() for old in known if old.attribute == each.attribute)
            begun = min((old.first for old in alike if old is not each), default=0)
            if len(numbers) == 1 and numbers.isdisjoint((-1, each.first)) and each.first != begun:
                wanted = next(iter(numbers))
                self.off.append(HeldCounter(where, each.key, counts[each.key], each.attribute, each.first, wanted))


def _in_sight() -> list[_Counter]:
    """The counters of objects whose methods are running."""
    found = {}
    for frame in near_frames():
        if is_user(frame) and (names := counters_restored(frame.f_code.co_filename)):
            holder = variables(frame).get("self")
            for attribute, key in names.items():
                value = getattr(holder, "__dict__", {}).get(attribute)
                if type(value) is int:
                    with suppress(TypeError):  # not everything can be referred to weakly
                        found[id(holder), attribute] = _Counter(weakref.ref(holder), attribute, key, value, value)
    return list(found.values())
