"""Captured: a training forward as it was called, so that a probe can call it again."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from surefoot.phases import aside


@dataclass
class Captured:
    """A call of a model with gradients on: what entered, what left, and what became of it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[int]
    """The graph number of each floating-point output, 0 where it has none."""
    autocast: tuple[str, torch.dtype] | None
    backward: int
    """How many backwards had been made before."""
    used: set[int] = field(default_factory=set)
    """Which of those numbers a backward passed."""
    graded: dict[int, torch.Tensor] = field(default_factory=dict)
    """Of outputs in rows of rows: which of these a backward gave a gradient."""

    def follow(self, outputs: list[torch.Tensor]) -> None:
        """Takes note of the rows of its outputs that a loss is made from."""
        for place, each in enumerate(outputs):
            if each.requires_grad and each.dim() == 3:
                each.register_hook(functools.partial(self._grade, place))

    def _grade(self, place: int, gradient: torch.Tensor) -> None:
        with aside():
            rows = (gradient != 0).any(-1)
            self.graded[place] = rows | self.graded.get(place, rows)
