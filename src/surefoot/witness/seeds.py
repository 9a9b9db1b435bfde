"""Seeds: whether the loop sets the seed anew in every step and draws from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.witness.calls import random_state
from surefoot.witness.scene import Part, Scene

_DRAWS = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_", "uniform_",
    "random_", "bernoulli", "bernoulli_", "multinomial",
}  # fmt: skip


class Seeds(Part):
    """What every update draws: the random state after seeding, at its first forward, and at each draw."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._states: dict[int, tuple[int, int]] = {}
        """By update: the state after seeding, and the one that the first forward began with."""
        self._seeded: int | None = None
        self._drawn: list[int] = []
        self._last_drawn: list[int] = []
        self._redrawn = 0

    def __enter__(self) -> Seeds:
        self.follow(torch, "manual_seed", after=self._seeds)
        return self

    def _seeds(self, *_: Any) -> None:
        if self.scene.close and not self.scene.phases.is_deaf:
            self._seeded = random_state()

    def model_called(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        if self.scene.close and torch.is_grad_enabled() and self._seeded is not None:
            self._states.setdefault(self.scene.updates, (self._seeded, random_state()))
            self._seeded = None

    def called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A function of torch's has returned."""
        if getattr(function, "__name__", "") not in _DRAWS or kwargs.get("generator") is not None:
            return
        drew = isinstance(out, torch.Tensor) and out.device.type == "cpu" and out.numel() > 0
        if drew and self.scene.close and torch.is_grad_enabled():
            self._drawn.append(random_state())

    def update_ends(self, optimizer: Optimizer) -> None:
        self._redrawn += bool(self._drawn) and self._drawn == self._last_drawn
        self._drawn, self._last_drawn = [], self._drawn

    def repeated(self) -> int:
        """How many updates drew what the one before had drawn."""
        seeded = sum(
            self._states.get(update - 1) == (seeded, drawn) and seeded != drawn
            for update, (seeded, drawn) in self._states.items()
        )
        return max(seeded, self._redrawn)
