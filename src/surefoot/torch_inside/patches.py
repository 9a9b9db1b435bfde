"""Patches: functions of torch that are replaced while something runs: nested, in any thread, restored in any order.

A place in torch (an owner and a name) gets one function that calls the newest replacement. Replacements are layers:
each wraps the next older one. So two of them may end in any order, and whoever patches the same place on top of ours,
or keeps a reference to it, still reaches torch's own function after the last layer has gone.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ClassMethodDescriptorType
from typing import Any

Make = Callable[[Any], Any]
"""Gets the function that was there and returns the one that takes its place. It may be called again later."""

_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}


def patch(owner: Any, name: str, make: Make) -> Callable[[], None]:
    """Puts `make(plain)` in the place of `owner.name`. Returns the function that takes it away again."""
    with _lock:
        place = _places.get((id(owner), name))
        if place is None or not place.stands():  # somebody else has patched it since: wrap what is there now
            place = _places[id(owner), name] = _Place(owner, name)
        layer = _Layer(make)
        place.add(layer)
    return functools.partial(_restore, place, layer)


@contextmanager
def patched(owner: Any, name: str, make: Make) -> Iterator[None]:
    """A context in which `owner.name` is `make(plain)`."""
    restore = patch(owner, name, make)
    try:
        yield
    finally:
        restore()


def _restore(place: _Place, layer: _Layer) -> None:
    with _lock:
        place.remove(layer)


def _parted(held: Any) -> tuple[type | None, Callable[..., Any]]:
    """How a class binds what it holds, and the function itself."""
    if isinstance(held, classmethod | staticmethod):
        return type(held), held.__func__
    if isinstance(held, ClassMethodDescriptorType):  # a class method that is written in C
        return classmethod, lambda owner, *args, **kwargs: held.__get__(None, owner)(*args, **kwargs)
    return None, held


class _Layer:
    """One replacement. Compared by identity: the same maker may be used twice."""

    def __init__(self, make: Make) -> None:
        self.make = make


class _Place:
    """A function of torch with its replacements, oldest first."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        held = inspect.getattr_static(owner, name) if isinstance(owner, type) else getattr(owner, name)
        self._held = held if name in vars(owner) else None
        """What the owner itself holds under the name; None if a base class does."""
        kind, self.plain = _parted(held)
        self.top = self.plain
        self._layers: list[_Layer] = []

        @functools.wraps(held)
        def newest(*args: Any, **kwargs: Any) -> Any:
            return self.top(*args, **kwargs)

        self._put: Any = newest if kind is None else kind(newest)

    def stands(self) -> bool:
        """Is our function still the one that the owner holds?"""
        return bool(self._layers) and vars(self.owner).get(self.name) is self._put

    def add(self, layer: _Layer) -> None:
        if not self._layers:
            setattr(self.owner, self.name, self._put)
        self._layers.append(layer)
        self.top = layer.make(self.top)

    def remove(self, layer: _Layer) -> None:
        if layer not in self._layers:
            return
        mine = self.stands()
        self._layers.remove(layer)
        self.top = functools.reduce(lambda plain, each: each.make(plain), self._layers, self.plain)
        if self._layers:
            return
        if mine:
            self._give_back()
        if _places.get((id(self.owner), self.name)) is self:
            del _places[id(self.owner), self.name]

    def _give_back(self) -> None:
        if self._held is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._held)
