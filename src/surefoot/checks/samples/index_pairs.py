"""Compares the indices by which a loop picks inputs and targets out of larger tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.samples import Parted, SampleFacts
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

FEWEST = 8
"""With fewer rows, two indices may agree by chance."""


@dataclass
class _Taken:
    """Rows that an index took out of a tensor."""

    taken: weakref.ref[torch.Tensor]
    whole: int
    """The memory address of the tensor they were taken from, and its length."""
    length: int
    index: int
    rows: int
    reorders: bool
    """The index is a permutation of all rows."""
    where: str


@dataclass
class _Used:
    """What an update used: targets, each with its index, and the indexed inputs."""

    targets: list[tuple[int, _Taken | None]] = field(default_factory=list)
    wholes: set[int] = field(default_factory=set)
    """The memory addresses of the targets."""
    paired: list[int] = field(default_factory=list)
    """The lengths of targets that pair each row of one input with the same row of another."""
    inputs: list[_Taken] = field(default_factory=list)


class IndexPairs(Observer):
    """Records the indices of inputs and targets, update by update."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._taken: list[_Taken] = []
        self._used = _Used()
        self._apart: list[str] = []
        self._together = 0

    def taken(self, args: Args, out: object) -> None:
        """Hears that a tensor was indexed."""
        whole, index = args[0], args[1] if len(args) > 1 else None
        if isinstance(index, tuple) and index and all(isinstance(each, slice) for each in index[1:]):
            index = index[0]
        if (
            not isinstance(whole, torch.Tensor)
            or not isinstance(index, torch.Tensor)
            or not isinstance(out, torch.Tensor)
        ):
            return
        if index.dtype != torch.int64 or index.dim() != 1 or len(index) < FEWEST or not readable(index):
            return
        with aside():
            index = HOST.of(index)
            rising = torch.arange(len(index))
            every = len(index) == len(whole) and bool((index.sort().values == rising).all())
            reorders = every and not bool((index == rising).all())
        print_ = digest(index)
        self._taken.append(
            _Taken(weakref.ref(out), whole.data_ptr(), len(whole), print_, len(index), reorders, caller())
        )

    def target(self, target: torch.Tensor) -> None:
        """Hears that a loss gets a target."""
        if target.dim() and len(target) >= FEWEST and not _is_constant(target):
            self._used.targets.append((len(target), self._of(target)))
            self._used.wholes.add(target.data_ptr())
            if counts_places(target):
                self._used.paired.append(len(target))

    def model_called(self, model: nn.Module, args: Args) -> None:
        if self.scene.close and torch.is_grad_enabled():
            self._used.inputs += [found for each in tensors(args) if (found := self._of(each)) is not None]

    def _of(self, tensor: torch.Tensor) -> _Taken | None:
        return next((each for each in reversed(self._taken) if each.taken() is tensor), None)

    def update_ends(self, optimizer: Optimizer) -> None:
        for count, target in self._used.targets:
            where = self._is_apart(count, target)
            self._apart += [where] if where else []
            self._together += target is not None and not where
        self._apart += [where for count in self._used.paired if (where := self._unlike(count))]
        self._taken, self._used = [], _Used()

    def _is_apart(self, count: int, target: _Taken | None) -> str:
        """The line that takes a target, or its inputs, by an index of its own; empty if all is well."""
        if target is None:
            moved = [each for each in self._used.inputs if each.rows == count and each.reorders]
            alone = len([each for each in self._taken if each.rows == count]) == 1
            return moved[0].where if moved and alone else ""
        if target.whole in self._used.wholes:
            return ""  # samples are mixed, with a loss for both targets
        others = [each for each in self._taken if each is not target and each.rows == count]
        if any(each.index == target.index for each in others):
            return ""
        beside = any(each.length == target.length for each in others)
        return target.where if target.reorders or beside else ""

    def _unlike(self, count: int) -> str:
        """The line that takes one of two inputs by a different index, from an array of the same length."""
        taken = [each for each in self._used.inputs if each.rows == count < each.length]
        pairs = [(a, b) for a in taken for b in taken if a.length == b.length and a.whole != b.whole]
        return pairs[0][1].where if pairs and all(a.index != b.index for a, b in pairs) else ""

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(parted=tuple(self._parted()))

    def _parted(self) -> Iterator[Parted]:
        """The line that separates inputs from targets, if it does so in every step seen."""
        if len(self._apart) >= 3 and not self._together:
            seen = "in every step inputs and targets were taken from arrays of equal length by different indices"
            yield Parted(self._apart[0], seen)


def _is_constant(target: torch.Tensor) -> bool:
    """Is the target the same for all samples, so that their order does not matter?"""
    with aside():
        return readable(target) and bool(((values := HOST.of(target)) == values[:1]).all())


def counts_places(target: torch.Tensor) -> bool:
    """Is the target of each sample its position in the batch?"""
    if target.numel() != len(target) or target.is_floating_point() or not readable(target):
        return False
    with aside():
        return sorted(HOST.of(target).flatten().tolist()) == list(range(len(target)))
