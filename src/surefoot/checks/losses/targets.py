"""The class targets of a loss, and which of them count; also for handwritten losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.scene import Scene, own, readable
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.checks.facts.losses import Loss
from surefoot.events.callers import caller
from surefoot.events.failsafe import Failsafe
from surefoot.torch_inside.modes import aside

_MOST = 64
PICKING = {"gather", "take_along_dim", "__getitem__"}


@dataclass(eq=False)
class Target:
    """The targets of one call of a loss."""

    loss: Loss
    values: torch.Tensor
    valid: torch.Tensor
    """The targets that count: not ignored, and not multiplied by a weight or mask of zero."""
    ignored: int


class Targets:
    """The first targets of a loop, from loss functions and handwritten losses."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.given: list[Target] = []
        self.picked: list[Target] = []

    def asked(self, loss: Loss, values: torch.Tensor, kwargs: Kwargs, out: torch.Tensor) -> None:
        """Records the class targets of a loss function."""
        if len(self.given) >= _MOST:
            return
        ignored, weight = kwargs.get("ignore_index", -100), kwargs.get("weight")
        kept = own(values)
        target = Target(loss, kept, kept != ignored, ignored)
        if isinstance(weight, torch.Tensor):
            target.valid &= (HOST.of(weight) != 0)[kept.clamp(0, len(weight) - 1)]
        self.given.append(target)
        if out.shape == values.shape and readable(out):
            _count(target, out, self.scene.failsafe)

    def taken(self, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Records scores that were indexed by class, as in a handwritten loss."""
        if len(self.picked) >= _MOST or not readable(out) or not out.requires_grad:
            return
        index = _index(name, args, kwargs)
        if not readable(index) or index.dtype != torch.long or index.numel() < 8 or index.numel() != out.numel():
            return
        with aside():
            values = own(index).reshape(out.shape)
            loss = Loss(name.strip("_"), caller(), "none", tuple(args[0].shape), tuple(index.shape), 0)
            loss.backward = self.scene.backwards
            self.picked.append(Target(loss, values, torch.ones_like(values, dtype=torch.bool), -100))
        _count(self.picked[-1], out, self.scene.failsafe)

    def of(self, backward: int) -> list[Target]:
        """The targets of one backward, those of loss functions first."""
        return [each for each in self.all() if each.loss.backward == backward]

    def all(self) -> list[Target]:
        return [*self.given, *self.picked]


def _index(name: str, args: Args, kwargs: Kwargs) -> Any:
    if name == "__getitem__":
        return args[1][-1] if isinstance(args[1], tuple) and args[1] else None
    return kwargs.get("index", kwargs.get("indices", next((a for a in args[1:] if isinstance(a, torch.Tensor)), None)))


def _count(target: Target, out: torch.Tensor, failsafe: Failsafe) -> None:
    """Targets whose loss a mask removes have no gradient: they do not count."""

    def counted(gradient: torch.Tensor) -> None:
        with aside():
            HOST.later(gradient != 0, cut)

    def cut(counts: torch.Tensor) -> None:
        target.valid = target.valid & counts.reshape(target.valid.shape)

    out.register_hook(failsafe.callback(counted))
