"""Seeds: whether the loop sets the seed anew in every step and draws from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from surefoot.witness.calls import random_state
from surefoot.witness.scene import Part, Scene


class Seeds(Part):
    """The random state right after it was seeded, and at the first forward of the update that follows."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._states: dict[int, tuple[int, int]] = {}
        """By update: the state after seeding, and the one that the first forward began with."""
        self._seeded: int | None = None

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

    def repeated(self) -> int:
        """How many updates drew before their first forward what the one before had drawn, after the same seed."""
        return sum(
            self._states.get(update - 1) == (seeded, drawn) and seeded != drawn
            for update, (seeded, drawn) in self._states.items()
        )
