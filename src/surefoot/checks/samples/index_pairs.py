"""Compares the indices by which a loop picks inputs and targets out of larger tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.samples import Parted
from surefoot.events.autograd import aside
from surefoot.events.callers import caller

FEWEST = 8
"""Fewer rows could be taken by the same index by chance."""


@dataclass
class _Taken:
    """Rows that were taken out of a tensor by an index."""

    taken: weakref.ref[torch.Tensor]
    whole: int
    """What they were taken from, by its place in memory, and its length."""
    length: int
    index: int
    rows: int
    reorders: bool
    """The index holds every row once, in another order."""
    where: str


@dataclass
class _Used:
    """What an update used: targets, each with what it was taken by, and the inputs that were taken."""

    targets: list[tuple[int, _Taken | None]] = field(default_factory=list)
    wholes: set[int] = field(default_factory=set)
    """The targets' places in memory."""
    paired: list[int] = field(default_factory=list)
    """The lengths of targets that say that each row of one input belongs to the same row of another."""
    inputs: list[_Taken] = field(default_factory=list)


class IndexPairs(Observer):
    """Indices of inputs and targets, update by update."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._taken: list[_Taken] = []
        self._used = _Used()
        self._apart: list[str] = []
        self._together = 0

    def taken(self, args: Args, out: object) -> None:
        """Something was indexed."""
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
            rising = torch.arange(len(index), device=index.device)
            every = len(index) == len(whole) and bool((index.sort().values == rising).all())
            reorders = every and not bool((index == rising).all())
        print_ = digest(index)
        self._taken.append(
            _Taken(weakref.ref(out), whole.data_ptr(), len(whole), print_, len(index), reorders, caller())
        )

    def target(self, target: torch.Tensor) -> None:
        """A loss is given a target."""
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
        """The line that takes a target, or the inputs beside it, by an index of its own; empty where all is well."""
        if target is None:
            moved = [each for each in self._used.inputs if each.rows == count and each.reorders]
            alone = len([each for each in self._taken if each.rows == count]) == 1
            return moved[0].where if moved and alone else ""
        if target.whole in self._used.wholes:
            return ""  # samples are mixed, and asked for both targets
        others = [each for each in self._taken if each is not target and each.rows == count]
        if any(each.index == target.index for each in others):
            return ""
        beside = any(each.length == target.length for each in others)
        return target.where if target.reorders or beside else ""

    def _unlike(self, count: int) -> str:
        """The line that takes one input by another index than that of another, from another array as long."""
        taken = [each for each in self._used.inputs if each.rows == count < each.length]
        pairs = [(a, b) for a in taken for b in taken if a.length == b.length and a.whole != b.whole]
        return pairs[0][1].where if pairs and all(a.index != b.index for a, b in pairs) else ""

    def parted(self) -> Iterator[Parted]:
        """The line at which inputs and targets part, if they do in every step seen."""
        if len(self._apart) >= 3 and not self._together:
            seen = "in every step inputs and targets were taken from arrays of one length by different indices"
            yield Parted(self._apart[0], seen)


def _is_constant(target: torch.Tensor) -> bool:
    """Is it the same for all samples, so that their order does not matter?"""
    with aside():
        return readable(target) and bool((target == target[:1]).all())


def counts_places(target: torch.Tensor) -> bool:
    """Is a target each sample's place in its batch?"""
    if target.numel() != len(target) or target.is_floating_point() or not readable(target):
        return False
    with aside():
        return sorted(target.flatten().tolist()) == list(range(len(target)))
