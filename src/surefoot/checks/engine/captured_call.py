"""A training forward as it was called, kept so that a probe can call it again."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.scene import own, readable, tensors
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.events.failsafe import Failsafe
from surefoot.torch_inside.modes import aside
from surefoot.trees import map_tensors

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

    devices: list[torch.device] = field(default_factory=list)
    """Where each of the tensors among `args` and `kwargs` was. They are kept on the host."""
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
            rows = (gradient.amin(-1) != 0) | (gradient.amax(-1) != 0)  # without a mask as large as the gradient
            HOST.later(rows, functools.partial(self._grade_rows, place))

    def _grade_rows(self, place: int, rows: torch.Tensor) -> None:
        self.graded[place] = rows | self.graded.get(place, rows)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        args: object,
        kwargs: object,
        outputs: list[int],
        autocast: tuple[str, torch.dtype] | None,
        backward: int,
    ) -> Captured:
        """A call with copies of its arguments, on the host."""
        devices: list[torch.device] = []

        def kept(each: torch.Tensor) -> torch.Tensor:
            devices.append(each.device)
            return own(each)

        with aside():
            own_args, own_kwargs = map_tensors(kept, (args, kwargs))
        return cls(model, own_args, own_kwargs, outputs, autocast, backward, devices=devices)

    def given(self, changed: Mapping[int, torch.Tensor]) -> tuple[Args, Kwargs]:
        """New copies of the arguments where they were, some of them replaced by their index."""
        places = iter(range(len(self.devices)))

        def again(each: torch.Tensor) -> torch.Tensor:
            place = next(places)
            new = changed.get(place, each)
            return new.clone() if new.device == self.devices[place] else new.to(self.devices[place])

        args, kwargs = map_tensors(again, (self.args, self.kwargs))
        return args, kwargs


def _is_column(tensor: torch.Tensor) -> bool:
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    return whole and tensor.dim() in (1, 2) and tensor.numel() == len(tensor) > 1
