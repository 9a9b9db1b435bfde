"""Finds the observers of every subject, makes them, and puts them into the order that they declare."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from typing import TypeVar

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene

Kind = TypeVar("Kind", bound=Observer)


class Observers:
    """All observers of a loop, each found by its class."""

    def __init__(self, kinds: Iterable[type[Observer]], scene: Scene) -> None:
        self._made = made(kinds, scene)

    def __getitem__(self, kind: type[Kind]) -> Kind:
        found: Kind = self._made[kind]  # type: ignore[assignment]
        return found

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._made.values())


def observers_in(package: str) -> list[type[Observer]]:
    """The observer classes defined in a package, without its rules, in the order that they declare."""
    found = set[type[Observer]]()
    for file in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        subject, _, rest = file.name.removeprefix(f"{package}.").partition(".")
        if subject not in ("engine", "facts", "source") and rest and not rest.startswith("rules"):
            module = importlib.import_module(file.name)
            found |= {
                each
                for each in vars(module).values()
                if inspect.isclass(each) and issubclass(each, Observer) and each.__module__ == file.name
            }
    return in_order(found)


def in_order(kinds: Iterable[type[Observer]]) -> list[type[Observer]]:
    """Sorted by `after` and `before`. Ties are broken by module name, so that the order is always the same."""
    kinds = sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__))
    sorter = TopologicalSorter(declared(kinds))
    sorter.prepare()
    ordered: list[type[Observer]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=kinds.index)
        ordered += ready
        sorter.done(*ready)
    return ordered


def declared(kinds: Iterable[type[Observer]]) -> dict[type[Observer], set[type[Observer]]]:
    """For each observer, those that must get an event before it."""
    earlier = {kind: set(kind.after) for kind in kinds}
    for kind in earlier:
        for each in kind.before:
            earlier[each].add(kind)
    return earlier


def made(kinds: Iterable[type[Observer]], scene: Scene) -> dict[type[Observer], Observer]:
    """One observer of each class. Each gets the other observers that its `__init__` asks for."""
    all_made: dict[type[Observer], Observer] = {}

    def make(kind: type[Observer]) -> Observer:
        if kind not in all_made:
            hints = typing.get_type_hints(kind.__init__)
            needed = {name: hint for name, hint in hints.items() if name not in ("scene", "return")}
            all_made[kind] = kind(scene, **{name: make(hint) for name, hint in needed.items()})
        return all_made[kind]

    return {kind: make(kind) for kind in kinds}
