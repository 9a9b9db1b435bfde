"""Finds masks that leave nothing of a loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.losses import LossFacts
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

PRODUCTS = {"mul", "__mul__", "__rmul__", "mul_", "__imul__"}
_PICKS = {"__getitem__", "masked_select"}


class EmptyMasks(Observer):
    """Checks what is left of a loss after the loop masks it."""

    functions = PRODUCTS | _PICKS
    reads = True
    waits = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._left: dict[str, list[bool]] = {}
        """For each line: whether the mask left something, each time it ran."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records a mask on a tensor with a gradient."""
        name = getattr(function, "__name__", "")
        if not (name in PRODUCTS or name in _PICKS) or not self.scene.close or self.scene.phases.in_model():
            return
        if len(args) < 2 or not isinstance(out, torch.Tensor) or not out.requires_grad:
            return
        masks = [each for each in args[:2] if readable(each) and not each.requires_grad and each.dim()]
        if not masks or (name in _PICKS and masks[0].dtype != torch.bool):
            return
        with aside():
            self._left.setdefault(caller(), []).append(bool(masks[0].any()))

    def facts(self) -> Iterator[LossFacts]:
        lines = (line for line, left in self._left.items() if len(left) >= 2 and not any(left))
        yield LossFacts(emptied_lines=tuple(lines))
