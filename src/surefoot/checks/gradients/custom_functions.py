"""Records the first call of each custom autograd.Function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.gradients import GradientFacts
from surefoot.checks.gradients.custom_backward import derivatives_of
from surefoot.torch_inside.modes import aside

Function = torch.autograd.Function


class CustomFunctions(Observer):
    """Keeps the first call of every function that is not torch's, with the requires_grad of its arguments."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.calls: dict[Any, Args] = {}

    def __enter__(self) -> CustomFunctions:
        self.follow(Function, "apply", before=lambda kind, *args, **_: self._note(kind, args))
        return self

    def _note(self, kind: object, args: Args) -> None:
        ours = not kind.__module__.startswith("torch.") and kind not in self.calls
        graded = torch.is_grad_enabled() and any(each.requires_grad for each in tensors(args))
        if ours and graded and self.scene.close and not self.scene.phases.is_deaf and all(map(readable, tensors(args))):
            with aside():
                self.calls[kind] = tuple(
                    each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
                    for each in args
                )

    def probed(self) -> Iterator[GradientFacts]:
        yield GradientFacts(derivatives=tuple(derivatives_of(self.calls, self.scene.phases)))
