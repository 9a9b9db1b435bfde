"""Finds networks that variables of user code hold: modules, and tables of tensors such as the weights of an average."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.scene import readable
from surefoot.events.callers import is_user, near_frames
from surefoot.source.frames import variables
from surefoot.torch_inside.modes import aside

_DEPTH = 2
"""How far attributes of objects are followed: `trainer.ema.shadow`."""
_MOST = 512
"""The most variables and attributes that are looked at, and the most modules inside one network."""
_FEWEST = 2
"""A network has at least this many parameters. Fewer have equal shapes by chance."""
_TENSORS, _VALUES = 3, 64
"""How many tensors of a network are compared, and how many values of each."""
_FOLLOWS = {
    "target", "targ", "tgt", "ema", "avg", "average", "averaged", "momentum", "slow", "polyak", "shadow", "swa",
    "lagged", "delayed", "teacher", "old",
}  # fmt: skip
"""Words for a network that follows another."""
_EITHER = {"teacher", "old"}
"""Those that may also name a network that was trained before and is kept as it is."""
_STAYS = {
    "ref", "reference", "frozen", "fixed", "init", "initial", "base", "pretrained", "prior", "anchor", "orig",
    "original", "best", "before", "snapshot", "start", "backup", "source", "src", "static", "random",
}  # fmt: skip
"""Words for a network that is meant to stay as it is."""

Shape = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""The structure of a network: the names, shapes and dtypes of its parameters."""


@dataclass(eq=False)
class Network:
    """A module, or a table of tensors, that user code holds by a name."""

    name: str
    read: Callable[[], Any]
    """Returns the module or the table; None if it no longer exists."""
    chosen: tuple[str | int, ...] = ()
    """The names of the tensors that are compared."""
    names: set[str] = field(default_factory=set)
    """All its names."""

    def module(self) -> nn.Module | None:
        found = self.read()
        return found if isinstance(found, nn.Module) else None

    def tensors(self) -> list[torch.Tensor]:
        """Those of its tensors that are compared; empty if it no longer exists."""
        found = self.read()
        try:
            if isinstance(found, nn.Module):
                return [found.get_parameter(str(name)) for name in self.chosen]
            return [] if found is None else [found[name] for name in self.chosen]
        except (AttributeError, KeyError, IndexError):
            return []

    def values(self) -> torch.Tensor | None:
        """A sample of its values; None if they cannot be read."""
        with aside():
            given = self.tensors()
            if not given or not all(map(readable, given)):
                return None
            flat = [each.detach().reshape(-1) for each in given]
            return torch.cat([each[:: max(1, each.numel() // _VALUES)][:_VALUES].cpu().double() for each in flat])

    def follows(self, *, may_stay: bool) -> bool:
        """Does its name say that it follows another network? A teacher `may_stay` as it is if it was trained before."""
        words = {word for name in self.names for word in words_of(name)}
        named = words & (_FOLLOWS - _EITHER if may_stay else _FOLLOWS)
        return bool(named) and words.isdisjoint(_STAYS)


def words_of(name: str) -> set[str]:
    """The words of a name: `agent.targetNet_2` has `agent`, `target` and `net`."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return set(re.sub(r"[^a-zA-Z]+", " ", spaced).lower().split())


def is_shadow_name(name: str) -> bool:
    """Does a name say that this is another network than the one that is trained?"""
    return not words_of(name).isdisjoint(_FOLLOWS)


def are_key_and_query(one: str, other: str) -> bool:
    """Are these the names of an encoder of keys and an encoder of queries?"""
    return not words_of(one).isdisjoint({"k", "key"}) and not words_of(other).isdisjoint({"q", "query"})


@dataclass(eq=False)
class Sighting:
    """A module, or a table of tensors, that a variable or an attribute holds."""

    name: str
    scope: int
    """The frame of the variable, counted from the innermost."""
    value: Any
    read: Callable[[], Any]
    """Finds it again. It is not kept alive."""


def in_sight() -> Iterator[Sighting]:
    """Modules, and tables of tensors, in the variables of user code and the attributes of objects there."""
    left = _MOST
    for scope, frame in enumerate(near_frames()):
        if is_user(frame):
            for name, value in islice(variables(frame).items(), left):
                left -= 1
                if not name.startswith("__"):
                    for path, held, read in _held(name, value, _variable(name), _DEPTH):
                        yield Sighting(path, scope, held, read)


def _held(path: str, value: Any, read: Callable[[], Any], depth: int) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    if isinstance(value, weakref.ProxyTypes):
        return  # a second name, as Lightning's trainer keeps, for a module that is held elsewhere
    if isinstance(value, nn.Module):
        yield path, value, weakref.ref(value)
    elif _is_table(value):
        yield path, value, read
    elif depth and _is_own_object(value):
        try:
            owner = weakref.ref(value)
        except TypeError:
            return
        for name, each in islice(list(vars(value).items()), _MOST):
            yield from _held(f"{path}.{name}", each, _attribute(owner, name), depth - 1)


def _variable(name: str) -> Callable[[], Any]:
    def read() -> Any:
        for frame in near_frames():
            if is_user(frame) and name in _names(frame.f_code):
                found = variables(frame).get(name)
                if _is_table(found):
                    return found
        return None

    return read


def _names(code: CodeType) -> tuple[str, ...]:
    return (*code.co_varnames, *code.co_cellvars, *code.co_freevars, *code.co_names)


def _attribute(owner: weakref.ref[Any], name: str) -> Callable[[], Any]:
    def read() -> Any:
        alive = owner()
        return None if alive is None else vars(alive).get(name)

    return read


def _is_table(value: Any) -> bool:
    """Is this a dict or list of at least as many tensors as a network has?"""
    if not isinstance(value, dict | list) or not _FEWEST <= len(value) <= 4096:
        return False
    items = value.values() if isinstance(value, dict) else value
    return all(isinstance(each, torch.Tensor) and each.grad_fn is None for each in items)


def _is_own_object(value: Any) -> bool:
    """Is this an object of a class that user code or a library for training defines?"""
    kind = type(value)
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type | torch.Tensor)
        and kind.__module__.split(".")[0] not in ("builtins", "torch", "numpy", "surefoot", "types", "functools")
    )


def structure(module: nn.Module) -> Shape:
    """The structure of a module; empty if it is too small to be recognised by it."""
    own = tuple((name, tuple(each.shape), each.dtype) for name, each in module.named_parameters())
    return own if len(own) >= _FEWEST and any(len(shape) >= 2 for _, shape, _ in own) else ()


def chosen_of(shape: Shape) -> tuple[str, ...]:
    """The parameters whose values are compared: the largest matrices."""
    matrices = [(name, torch.Size(size).numel()) for name, size, _ in shape if len(size) >= 2]
    return tuple(name for name, _ in sorted(matrices, key=lambda each: -each[1])[:_TENSORS])


def has_structure(value: Any, shape: Shape) -> bool:
    """Does a table hold the parameters of this structure, by name or in order?"""
    if isinstance(value, dict):
        return all(name in value and tuple(value[name].shape) == size for name, size, _ in shape)
    return [tuple(each.shape) for each in value] == [size for _, size, _ in shape]
