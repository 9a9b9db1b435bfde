"""Step counts: integers that grow with every step, and the steps at which code that compares them does something else.

An optimizer that decomposes its gradients every 200 steps, or averages weights from step 1,000 on, keeps a count. In a
plan, the count is a number that notes what it is compared with. So a plan can set all counts ahead and look at the step
that matters, without the steps before it.
"""

from __future__ import annotations

import functools
import math
import random
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from surefoot.torch_inside.fake_mode import FakeTensor, unset_fake_temporarily
from surefoot.torch_inside.patches import patched
from surefoot.world.user_line import NOT_THE_USER, where

DEEPEST = 5
"""How many objects inside each other are looked through for counts."""
MOST = 50_000
"""Objects that are looked at."""
OF_TORCH = " of torch"
"""Where a comparison stands that is no line of the user's."""
ALIKE = {torch.optim.Adadelta, torch.optim.Adafactor, torch.optim.Adagrad, torch.optim.Adam, torch.optim.Adamax}
ALIKE |= {torch.optim.AdamW, torch.optim.ASGD, torch.optim.NAdam, torch.optim.RMSprop, torch.optim.Rprop}
ALIKE |= {torch.optim.SGD, torch.optim.SparseAdam}
"""Optimizers of torch that do the same in every step but the first. RAdam and LBFGS do not."""
_HOLDERS = (dict, OrderedDict, defaultdict, list, tuple)
COMPARING = {"remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge"}
_ENDS: tuple[type, ...] = (str, bytes, types.ModuleType, type, np.ndarray, torch.dtype, torch.device)


@dataclass(frozen=True)
class Slot:
    """A place that holds an integer: a key of a dict, an attribute, or a variable of a closure."""

    holder: Any
    name: Any

    def read(self) -> Any:
        """What is there now; None if there is nothing."""
        if isinstance(self.holder, types.CellType):
            return _content(self.holder)
        return self.holder.get(self.name)

    def write(self, value: Any) -> None:
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        else:
            self.holder[self.name] = value

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.holder), self.name


@dataclass
class Comparisons:
    """At which steps a comparison of a count comes out otherwise, and the line of code. `step` is the one that runs."""

    step: int = 0
    steps: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """By the line, the number it compares with, and the number it divides by, or 0."""
    unknown: str = ""
    """The line that uses a count in a way that says nothing about steps. Empty if there is none."""

    def note(self, ahead: int, rate: int, other: int, modulus: int = 0) -> None:
        """A count, which grows by `rate` a step, decides otherwise when it has grown by `ahead`."""
        if ahead > 0:
            self.steps.setdefault((where(), other, modulus), self.step + -(-ahead // rate))


class Count(int):
    """A count of steps that notes what it is compared with. `modulus` is set on a remainder of one."""

    log: Comparisons
    rate: int
    modulus: int | None
    exact: bool

    @classmethod
    def of(cls, value: int, log: Comparisons, rate: int, *, modulus: int | None = None, exact: bool = True) -> Count:
        made = cls(value)
        made.log, made.rate, made.modulus, made.exact = log, rate, modulus, exact
        return made

    def _like(self, value: Any, *, exact: bool) -> Any:
        if not isinstance(value, int):
            return Derived.of(value, self.log) if isinstance(value, float) else value
        return Count.of(value, self.log, self.rate, exact=exact and self.exact and self.modulus is None)

    def _decides(self, other: Any, more: int = 0) -> None:
        """The count is compared with a number; `more` is 1 if the next number decides otherwise."""
        if not isinstance(other, int | float) or not math.isfinite(other):
            return
        with_number, value = int(other), int.__int__(self)
        if not self.exact:
            self.log.unknown = self.log.unknown or where() or OF_TORCH
        elif self.modulus is None:
            self.log.note(with_number + more - value, self.rate, with_number)
        else:
            self.log.note((with_number - value) % self.modulus or self.modulus, self.rate, with_number, self.modulus)

    def __reduce__(self) -> Any:
        return int, (int.__int__(self),)

    def __deepcopy__(self, _: Any) -> int:
        return int.__int__(self)

    def __hash__(self) -> int:
        self.log.unknown = self.log.unknown or where() or OF_TORCH  # looked up among milestones
        return int.__hash__(self)

    def __bool__(self) -> bool:
        self._decides(0)
        return int.__bool__(self)

    def __mod__(self, other: Any) -> Any:
        made = int.__mod__(self, other)
        if not isinstance(made, int) or not self.exact or self.modulus is not None:
            return self._like(made, exact=False)
        return Count.of(made, self.log, self.rate, modulus=abs(int(other)))


class Derived(float):
    """A number that was computed from a count. Which step it decides by is not known."""

    log: Comparisons

    @classmethod
    def of(cls, value: float, log: Comparisons) -> Derived:
        made = cls(value)
        made.log = log
        return made

    def __reduce__(self) -> Any:
        return float, (float.__float__(self),)

    def __deepcopy__(self, _: Any) -> float:
        return float.__float__(self)

    __hash__ = float.__hash__


def _arithmetic(name: str, *, exact: bool) -> Callable[..., Any]:
    plain, with_float = getattr(int, name), getattr(float, name, None)

    def made(self: Count, *others: Any) -> Any:
        value = plain(self, *others)
        if value is NotImplemented and with_float is not None and isinstance(others[0], float):
            value = with_float(float(int.__int__(self)), *others)
        return self._like(value, exact=exact)

    return made


def _derived(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def made(self: Derived, *others: Any) -> Any:
        value = plain(self, *others)
        return Derived.of(value, self.log) if isinstance(value, float) else value

    return made


def _decided(name: str) -> Callable[[Derived, Any], Any]:
    plain = getattr(float, name)

    def made(self: Derived, other: Any) -> Any:
        self.log.unknown = self.log.unknown or where() or OF_TORCH
        return plain(self, other)

    return made


def _comparison(name: str, more: int) -> Callable[[Count, Any], Any]:
    plain = getattr(int, name)

    def made(self: Count, other: Any) -> Any:
        self._decides(other, more)
        return plain(self, other)

    return made


for _name in ("__add__", "__radd__", "__sub__"):
    setattr(Count, _name, _arithmetic(_name, exact=True))
for _name in ("__rsub__", "__mul__", "__rmul__", "__floordiv__", "__truediv__", "__neg__", "__and__", "__rshift__"):
    setattr(Count, _name, _arithmetic(_name, exact=False))
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "abs"):
    setattr(Derived, f"__{_name}__", _derived(f"__{_name}__"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Derived, f"__{_name}__", _decided(f"__{_name}__"))
for _name, _more in {"__eq__": 0, "__ne__": 0, "__ge__": 0, "__lt__": 0, "__gt__": 1, "__le__": 1}.items():
    setattr(Count, _name, _comparison(_name, _more))


class StepCounts:
    """The counts that some objects keep: found by comparing all integers in sight before and after a step."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.roots = list(roots)
        self.log = Comparisons()
        self._slots: dict[tuple[int, Any], tuple[Slot, int]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, int]] = {}
        self._generators: list[tuple[Any, Any]] = []
        self._following: list[tuple[Slot, int]] = []
        """Every count that is followed, and by how much a step raises it."""
        self._followed_tensors: dict[int, tuple[torch.Tensor, int]] = {}

    def look(self) -> None:
        """Remembers all integers, and the states of generators, as they are now."""
        self._slots, self._tensors, self._generators = {}, {}, []
        for each in in_sight(self.roots):
            if isinstance(each, Slot):
                self._slots[each.key] = each, int.__int__(each.read())
            elif isinstance(each, torch.Tensor):
                self._tensors[id(each)] = each, _number(each)
            else:
                self._generators.append((each, _state(each)))

    @property
    def drew(self) -> bool:
        """Whether a generator of random numbers that the objects keep was drawn from since the last look."""
        return any(_state(each) != before for each, before in self._generators)

    def follow(self) -> bool:
        """From now on, notes what the integers are compared with that grew since the last look. Are there any?"""
        for slot, before in self._slots.values():
            value = slot.read()
            if type(value) is int and value > before:
                self._following.append((slot, value - before))
                slot.write(Count.of(value, self.log, value - before))
        for tensor, before in self._tensors.values():
            if (now := _number(tensor)) > before:
                self._followed_tensors[id(tensor)] = tensor, now - before
        return bool(self._following or self._followed_tensors)

    @contextmanager
    def reads(self) -> Iterator[None]:
        """A context in which `.item()` of a tensor that counts steps returns such a number."""

        def item(plain: Any) -> Callable[[torch.Tensor], Any]:
            def read(tensor: torch.Tensor) -> Any:
                value, known = plain(tensor), self._followed_tensors.get(id(tensor))
                return value if known is None or value != int(value) else Count.of(int(value), self.log, known[1])

            return read

        with patched(torch.Tensor, "item", item):
            yield

    def heard(self, func: Any, args: Any) -> None:
        """An operator runs on small tensors that are real. Notes what it compares with a tensor that counts steps."""
        tensor, rate = self._followed_tensors.get(id(args[0]) if args else 0, (None, 0))
        name = func.overloadpacket.__name__
        if (
            tensor is None
            or name not in COMPARING
            or len(args) < 2
            or not isinstance(args[1], int | float)
            or not args[1]
        ):
            return
        value, other = _number(tensor), int(args[1])
        if name in ("remainder", "fmod"):
            self.log.note(-value % other or other, rate, 0, other)
        else:
            self.log.note(other + (name in ("gt", "le")) - value, rate, other)

    def forget(self) -> None:
        """Makes all counts plain integers again."""
        for slot, _ in self._following:
            if isinstance(value := slot.read(), Count):
                slot.write(int.__int__(value))
        self._following, self._followed_tensors = [], {}

    def go_ahead(self, steps: int) -> None:
        """Sets all counts as if so many steps had been taken."""
        for slot, rate in self._following:
            if isinstance(value := slot.read(), Count) and value.modulus is None:
                slot.write(value + rate * steps)
        with unset_fake_temporarily():
            for tensor, rate in self._followed_tensors.values():
                tensor.add_(rate * steps)


@contextmanager
def integers_kept(roots: Iterable[Any]) -> Iterator[None]:
    """A context that gives integers their values back: those that the user's functions hold outside of themselves."""
    slots = [each for each in in_sight(roots) if isinstance(each, Slot)]
    before = [(each, each.read()) for each in slots]
    try:
        yield
    finally:
        for slot, value in before:
            if type(now := slot.read()) is not type(value) or now != value:
                slot.write(value)


def in_sight(roots: Iterable[Any]) -> Iterator[Any]:
    """The places of integers, the tensors of one number and the generators that objects hold, some levels deep."""
    seen, level = set[int](), list(roots)
    for _ in range(DEEPEST):
        following: list[Any] = []
        for each in level:
            if id(each) in seen or len(seen) > MOST:
                continue
            seen.add(id(each))
            for holder, name, value in _inside(each):
                if type(value) is int or isinstance(value, Count):
                    yield Slot(holder, name)
                elif isinstance(value, torch.Tensor):
                    if value.dim() == 0 and type(value) is torch.Tensor and value.device.type == "cpu":
                        yield value
                elif isinstance(value, random.Random | np.random.Generator):
                    yield value
                elif value is not None and not isinstance(value, _ENDS) and not (type(value) in _HOLDERS and not value):
                    following.append(value)
        level = following


def _inside(thing: Any) -> Iterator[tuple[Any, Any, Any]]:
    """What an object holds: the holder, the name there, the value. Nothing of what torch does alike in every step."""
    if isinstance(thing, torch.optim.Optimizer) and type(thing) in ALIKE:
        return
    if isinstance(thing, torch.nn.Module) and type(thing).__module__.startswith("torch."):
        yield from ((None, None, each) for each in thing.children())
    elif type(thing) in (dict, OrderedDict, defaultdict):
        yield from ((thing, name, value) for name, value in list(thing.items()))
    elif type(thing) in (list, tuple):
        yield from ((None, None, value) for value in thing if not isinstance(value, int | float | torch.Tensor))
    elif isinstance(thing, functools.partial):
        yield from ((None, None, value) for value in (thing.func, *thing.args, *thing.keywords.values()))
    elif isinstance(thing, types.MethodType):
        yield from ((None, None, value) for value in (thing.__self__, thing.__func__))
    elif isinstance(thing, types.BuiltinMethodType):
        yield None, None, thing.__self__
    elif isinstance(thing, types.FunctionType):
        if _is_foreign(thing.__module__):
            return
        yield from ((cell, "", _content(cell)) for cell in thing.__closure__ or ())
        names = [name for name in thing.__code__.co_names if name in thing.__globals__]
        yield from ((thing.__globals__, name, thing.__globals__[name]) for name in names)
    elif isinstance(thing, torch.optim.Optimizer | torch.nn.Module | types.SimpleNamespace) or (
        hasattr(thing, "__dict__") and not _is_foreign(type(thing).__module__)
    ):
        yield from ((vars(thing), name, value) for name, value in list(vars(thing).items()))


def _is_foreign(module: str | None) -> bool:
    """Whether something is of torch, surefoot or Python: what counts there is none of the user's business."""
    return (module or "").split(".")[0] in {"numpy", *NOT_THE_USER}


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _number(tensor: torch.Tensor) -> int:
    if isinstance(tensor, FakeTensor):
        return 0
    with unset_fake_temporarily():
        value = float(tensor.item())
    return int(value) if math.isfinite(value) else 0


def _state(generator: Any) -> Any:
    return generator.getstate() if isinstance(generator, random.Random) else str(generator.bit_generator.state)
