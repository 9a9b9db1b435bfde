"""Records the first call of each custom autograd.Function."""

from __future__ import annotations

from typing import Any

import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.events.autograd import aside

Function = torch.autograd.Function


class CustomFunctions(Observer):
    """Keeps the first call of every function that is not torch's, with the requires_grad of its arguments."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.calls: dict[Any, Args] = {}

    def __enter__(self) -> CustomFunctions:
        plain = Function.__dict__["apply"]

        def followed(kind: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(kind, args)
            return plain.__func__(kind, *args, **kwargs)

        Function.apply = classmethod(followed)  # type: ignore[assignment, method-assign]
        self._entered.callback(setattr, Function, "apply", plain)
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
