"""Keeps the first call of every loss that is a module of the user's, so that a probe can call it again."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from surefoot.checks.engine.captured_call import Captured
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args

_MOST = 8


class LossModules(Observer):
    """Keeps calls of modules without parameters, outside of every model, whose result is a single number."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.calls: list[Captured] = []
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        if not self.scene.close or len(self.scene.phases.running()) != 1 or module in self._seen:
            return
        given = list(tensors(args))
        is_own = not type(module).__module__.startswith("torch.") and next(module.parameters(), None) is None
        is_loss = isinstance(output, torch.Tensor) and output.requires_grad and output.numel() == 1
        if is_own and is_loss and len(given) > 1 and all(map(readable, given)) and len(self.calls) < _MOST:
            self._seen.add(module)
            self.calls.append(Captured.of(module, args, {}, [], None, self.scene.backwards))
