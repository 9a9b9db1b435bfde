"""Finds the repeated blocks of a model, and builds the same model with fewer of them.

Blocks are children of an `nn.ModuleList` or `nn.Sequential`. Two are alike if they have the same modules, parameters,
buffers and attributes, except for attributes that hold the block's own position, as a number or in a name. A repeated
pattern of up to four kinds of blocks counts as one block. Alike blocks may still behave differently: `block_proof.py`
verifies that they do not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from types import FunctionType
from typing import Any

import torch
from torch import nn

from surefoot.torch_inside.modules import TABLES, buffers_of, children_of, hooks_of, parameters_of

MOST_KINDS = 4


@dataclass(frozen=True)
class Repeat:
    """A run of alike blocks: `times` x `kinds` children of a container, starting at `first`."""

    name: str
    container: nn.Module
    first: int
    times: int
    kinds: int = 1

    @property
    def prefix(self) -> str:
        return f"{self.name}." if self.name else ""

    def holds(self, position: int) -> bool:
        return self.first <= position < self.first + self.times * self.kinds


class Repeats:
    """The runs of a model that have the same length. All are shortened together."""

    def __init__(self, runs: list[Repeat]) -> None:
        self.runs = runs
        self.times = runs[0].times if runs else 0
        self._split: dict[str, tuple[str, tuple[int, ...]]] = {}

    def __bool__(self) -> bool:
        return bool(self.runs)

    def split(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Splits `layers.3.mlp` into `layers.{}.mlp` and 3, if block 3 of `layers` is in a run or after it."""
        if name not in self._split:
            self._split[name] = self._parted(name)
        return self._split[name]

    def _parted(self, name: str) -> tuple[str, tuple[int, ...]]:
        for run in self.runs:
            block = re.match(r"(\d+)(?=\.|$)", name.removeprefix(run.prefix)) if name.startswith(run.prefix) else None
            if block and int(block[1]) >= run.first:
                return f"{run.prefix}{{}}{name[len(run.prefix) + block.end() :]}", (int(block[1]),)
        return name, ()

    @contextmanager
    def shortened(self, times: int) -> Iterator[None]:
        """A context in which the model has only the first `times` blocks of each run."""
        whole = [dict(children_of(run.container)) for run in self.runs]
        for run in self.runs:
            dropped = range(run.first + times * run.kinds, run.first + run.times * run.kinds)
            kept = [child for position, child in enumerate(run.container.children()) if position not in dropped]
            _set_children(run.container, {str(position): child for position, child in enumerate(kept)})
        try:
            yield
        finally:
            for run, children in zip(self.runs, whole, strict=True):
                _set_children(run.container, children)

    def __str__(self) -> str:
        return " and ".join(f"{run.times * run.kinds} blocks of {run.name or 'the model'}" for run in self.runs)


def find_repeats(model: nn.Module, *, fewest: int) -> Repeats:
    """The run of at least `fewest` blocks that saves most when shortened, and all runs of the same length."""
    owners = _owners(model)
    runs = [run for run in _runs(model, "", owners) if run.times >= fewest]
    weights = {run: run.times * sum(1 for _ in _blocks(run)[0].parameters()) for run in runs}
    longest = max(runs, key=lambda run: weights[run], default=None)
    return Repeats([run for run in runs if longest is not None and run.times == longest.times])


def _runs(module: nn.Module, name: str, owners: dict[int, int]) -> Iterator[Repeat]:
    """The longest run of each container. Runs inside of a run are not searched."""
    run = _longest_run(module, name, owners) if isinstance(module, nn.ModuleList | nn.Sequential) else None
    if run is not None:
        yield run
    for position, (child_name, child) in enumerate(module.named_children()):
        if run is None or not run.holds(position):
            yield from _runs(child, f"{name}.{child_name}".lstrip("."), owners)


def _longest_run(container: nn.Module, name: str, owners: dict[int, int]) -> Repeat | None:
    """The longest run of a container. None if no block repeats, or children are not numbered or are tied to others."""
    if [*children_of(container)] != [str(position) for position in range(len(children_of(container)))]:
        return None
    blocks = list(container.children())
    if len(blocks) != len(children_of(container)) or any(
        owners[id(each)] > 1 for block in blocks for each in _parts(block)
    ):
        return None
    found = [_features(block) for block in blocks]
    best = None
    for kinds in range(1, MOST_KINDS + 1):
        for first, length in _alike_runs(found, kinds):
            times = length // kinds
            if times > 1 and (best is None or times * kinds > best.times * best.kinds):
                best = Repeat(name, container, first, times, kinds)
    return best


def _alike_runs(found: list[list[tuple[Any, Any]]], kinds: int) -> Iterator[tuple[int, int]]:
    """The start and length of runs in which each member is like the one `kinds` positions later."""
    first = 0
    for position in range(len(found)):
        after = position + kinds
        if after >= len(found) or not _alike(found[position], position, found[after], after):
            yield first, after - first
            first = position + 1


def _alike(one: list[tuple[Any, Any]], at: int, other: list[tuple[Any, Any]], there: int) -> bool:
    return len(one) == len(other) and all(
        (a, b) == (c, d) or (a == c and _is_place(b, at, d, there)) for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _is_place(value: Any, at: int, other: Any, there: int) -> bool:
    """Whether two values hold the positions of their blocks: as a number, or in a name such as `layers.3.mlp`."""
    if type(value) is not type(other):
        return False
    if type(value) is int:
        return (value, other) == (at, there)
    if type(value) is not str:
        return False
    pairs = list(zip_longest(value.split("."), other.split(".")))
    return [pair for pair in pairs if pair[0] != pair[1]] == [(str(at), str(there))]


# ------------------------------------------------------------------------------------------- what a block is like


def _features(block: nn.Module) -> list[tuple[Any, Any]]:
    """The names and values by which blocks are compared."""
    found: list[tuple[Any, Any]] = []
    for name, module in block.named_modules():
        found.append(((name, "class"), type(module)))
        for kind, tensors in (("parameter", parameters_of(module)), ("buffer", buffers_of(module))):
            found += (((name, kind, each), _plain(tensor)) for each, tensor in tensors.items())
        own = (item for item in vars(module).items() if item[0] not in TABLES)
        found += _leaves((name,), own)
    return found


def _leaves(path: tuple[Any, ...], items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The values of nested containers, each with its path."""
    for key, value in items:
        if isinstance(value, list | tuple | dict):
            yield (*path, key), (type(value), len(value))
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            named = ((each if isinstance(each, str) else n, item) for n, (each, item) in enumerate(inside))
            yield from _leaves((*path, key), named)
        else:
            yield (*path, key), _plain(value)


def _plain(value: Any) -> Any:
    """A comparable form of a value: the value itself, a tensor's layout, or an object's parts."""
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device | type):
        return value
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device, value.requires_grad, hooks_of(value)
    return _Object(value)


class _Object:
    """Equal to the same object, to a function with the same code, and to an object of the same type and parts."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Object) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> Any:
        value = getattr(self.value, "__func__", self.value)
        if isinstance(value, FunctionType):
            return value.__code__
        if isinstance(value, functools.partial):
            return _Object(value.func), list(_leaves((), [("args", value.args), ("keywords", value.keywords)]))
        return () if isinstance(value, nn.Module) else list(_leaves((), getattr(value, "__dict__", {}).items()))


def _owners(model: nn.Module) -> dict[int, int]:
    """How many places of the model hold each module and each parameter."""
    count: dict[int, int] = {}
    for _, module in model.named_modules(remove_duplicate=False):
        count[id(module)] = count.get(id(module), 0) + 1
    for _, parameter in model.named_parameters(remove_duplicate=False):
        count[id(parameter)] = count.get(id(parameter), 0) + 1
    return count


def _parts(block: nn.Module) -> Iterator[Any]:
    yield from block.modules()
    yield from block.parameters()


def _blocks(run: Repeat) -> list[nn.Module]:
    return list(run.container.children())[run.first : run.first + run.times * run.kinds]


def _set_children(container: nn.Module, children: Mapping[str, nn.Module | None]) -> None:
    children_of(container).clear()
    children_of(container).update(children)
