"""A training forward as it was called, kept so that a probe can call it again."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from torch import nn

from surefoot.checks.engine.scene import readable, tensors
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.events.autograd import aside
from surefoot.events.failsafe import Failsafe

_MOST = 256


@dataclass
class Captured:
    """A call of a model with gradients on: its inputs, its outputs, and how a backward used them."""

    model: nn.Module
    args: Args
    kwargs: Kwargs
    outputs: list[int]
    """The graph node number of each floating-point output; 0 if it has none."""
    autocast: tuple[str, torch.dtype] | None
    backward: int
    """The number of backwards before this call."""
    used: set[int] = field(default_factory=set)
    """The numbers in `outputs` that a backward passed through."""
    graded: dict[int, torch.Tensor] = field(default_factory=dict)
    """For three-dimensional outputs: the rows that received a gradient."""

    columns: list[torch.Tensor] = field(default_factory=list)
    """If each call gets one token per sample, as in a decoding loop: the tokens of this call and those before it."""

    def goes_on(self, before: Captured | None) -> None:
        """Continues the columns of the previous call if both belong to the same backward."""
        column = next((each for each in tensors((self.args, self.kwargs)) if _is_column(each)), None)
        if column is not None:
            earlier = before.columns if before is not None and before.backward == self.backward else []
            self.columns = [*earlier[-_MOST:], column.flatten()]

    def used_places(self) -> list[int]:
        """The indices of the outputs that a backward passed through."""
        return [place for place, number in enumerate(self.outputs) if number in self.used]

    def follow(self, outputs: list[torch.Tensor], failsafe: Failsafe) -> None:
        """Records which rows of the outputs receive a gradient."""
        for place, each in enumerate(outputs):
            if each.requires_grad and each.dim() == 3 and readable(each):
                each.register_hook(functools.partial(failsafe.callback(self._grade), place))

    def _grade(self, place: int, gradient: torch.Tensor) -> None:
        with aside():
            rows = (gradient != 0).any(-1)
            self.graded[place] = rows | self.graded.get(place, rows)


def _is_column(tensor: torch.Tensor) -> bool:
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    return whole and tensor.dim() in (1, 2) and tensor.numel() == len(tensor) > 1
