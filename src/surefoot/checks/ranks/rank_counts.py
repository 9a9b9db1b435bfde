"""Finds where a loop multiplies or divides by the number of ranks."""

from __future__ import annotations

import linecache
from typing import Any

import torch
import torch.distributed as dist

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.events.callers import caller

_DIVIDES = {"__truediv__", "__itruediv__", "div", "div_", "true_divide", "_foreach_div", "_foreach_div_"}
_WORDS = ("world", "ranks")
_SCALES = {*_DIVIDES, "__mul__", "__rmul__", "__imul__", "mul", "mul_"}


class RankCounts(Observer):
    """Finds losses and gradients scaled by the number of ranks, and losses divided by a sum over ranks."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.of_loss = self.of_gradients = ""
        """The line that scaled a loss by that number, and the line that divided gradients by it."""
        self.divides_by_total = False
        self._totals: WeakNotes[None] = WeakNotes()
        """Sums over ranks without a gradient, and single numbers computed from them."""

    def __enter__(self) -> RankCounts:
        self.follow(dist, "all_reduce", before=self._sums)
        return self

    def _sums(self, given: torch.Tensor, op: Any = dist.ReduceOp.SUM, *_: object, **__: object) -> None:
        if op == dist.ReduceOp.SUM and given.numel() == 1 and not given.requires_grad:
            self._totals[given] = None

    def scaled(self, name: str, args: Args, out: object, *, averaged: bool) -> None:
        """Checks a torch call. `averaged` says whether a wrapper has exchanged the gradients."""
        if name in _SCALES and _is_rank_count(args[-1]):
            self._scale(name, args, averaged=averaged)
        elif not self._totals or not args:
            return
        elif name in _DIVIDES and args[-1] in self._totals:
            self.divides_by_total |= isinstance(args[0], torch.Tensor) and args[0].requires_grad
        elif args[0] in self._totals and isinstance(out, torch.Tensor) and out.numel() == 1 and not out.requires_grad:
            self._totals[out] = None

    def _scale(self, name: str, args: Args, *, averaged: bool) -> None:
        given = list(tensors(args[0]))
        if len(given) == 1 and given[0].requires_grad and given[0].numel() == 1:
            self.of_loss = self.of_loss or caller()
        elif averaged and not self.of_gradients and name in _DIVIDES and self._are_gradients(given):
            self.of_gradients = caller()

    def _are_gradients(self, given: list[torch.Tensor]) -> bool:
        own = {_place(p.grad) for p in self.scene.names() if p.grad is not None and readable(p.grad)}
        return any(readable(each) and _place(each) in own for each in given)


def _is_rank_count(number: Any) -> bool:
    """Is this the number of ranks, and does the line say so? Other numbers may be equal by chance."""
    if not isinstance(number, int | float) or not dist.is_initialized() or number != dist.get_world_size():
        return False
    file, _, line = caller().rpartition(":")
    return line.isdigit() and any(word in linecache.getline(file, int(line)).lower() for word in _WORDS)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
