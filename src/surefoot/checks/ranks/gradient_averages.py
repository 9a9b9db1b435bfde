"""Compares the gradients that one rank computes with those its update uses."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held, readable
from surefoot.torch_inside.modes import aside

LOOKED_AT = 4
"""The number of updates that are watched."""
_VALUES = 128
"""The number of elements of each gradient that are kept."""


class GradientAverages(Observer):
    """Records gradients before and after the exchange, for ranks to compare."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.windows: list[tuple[list[float], list[float]]] = []
        """For each update: the gradients of this rank's backwards, and `.grad` before clipping."""
        self._parameters: list[torch.Tensor] = []
        self._handles: list[Any] = []
        self._given: list[torch.Tensor | None] = []
        self._used: list[float] | None = None

    def __enter__(self) -> GradientAverages:
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self.follow(nn.utils, name, before=lambda *_, **__: self._take())
        self._entered.callback(self._leave)
        return self

    def _leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def look_at(self, model: nn.Module) -> None:
        """Follows the last parameters of the first model."""
        if self._parameters:
            return
        trained = [p for p in model.parameters() if p.requires_grad and readable(p) and p.numel() >= 4]
        self._parameters = [*trained[-2:]]
        self._given = [None for _ in self._parameters]
        add = self.scene.failsafe.callback(self._add)
        for place, parameter in enumerate(self._parameters):
            self._handles.append(parameter.register_hook(functools.partial(add, place)))

    def _add(self, place: int, gradient: torch.Tensor) -> None:
        with aside():
            part, before = _part(gradient).clone(), self._given[place]
            self._given[place] = part if before is None else before + part

    def _take(self) -> None:
        if self._used is None and self._handles and all(p.grad is not None for p in self._parameters):
            with aside():
                self._used = [value for p in self._parameters for value in _part(p.grad).tolist()]

    def update_begins(self, optimizer: Optimizer) -> None:
        if self._handles and set(self._parameters) <= set(held(optimizer)):
            self._take()

    def update_ends(self, optimizer: Optimizer) -> None:
        if not self._handles or not set(self._parameters) <= set(held(optimizer)):
            return
        if self._used is not None and all(each is not None for each in self._given):
            given = [value for each in self._given if each is not None for value in each.tolist()]
            self.windows.append((given, self._used))
        self.update_left_out(optimizer)
        if len(self.windows) == LOOKED_AT:
            self._leave()

    def update_left_out(self, optimizer: Optimizer) -> None:
        self._given, self._used = [None for _ in self._parameters], None


def _part(gradient: torch.Tensor | None) -> torch.Tensor:
    assert gradient is not None
    flat = gradient.detach().float().reshape(-1)
    return flat[:: max(1, flat.numel() // _VALUES)].cpu()


def ratio_to_mean(given: list[list[float]], used: list[float]) -> float | None:
    """The gradients of an update divided by the mean over ranks; None if they are not a multiple of it."""
    mean = torch.tensor(given, dtype=torch.float64).mean(0)
    taken = torch.tensor(used, dtype=torch.float64)
    if not float(mean.norm()) or mean.shape != taken.shape:
        return None
    ratio = float(taken @ mean / (mean @ mean))
    return ratio if float((taken - ratio * mean).norm()) < 1e-2 * float(taken.norm()) else None
