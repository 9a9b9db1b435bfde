"""Decides when a script is watched: in its first updates, and in its first evaluation if that is later."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import held
from surefoot.checks.engine.types import Args
from surefoot.checks.watcher import Watcher

_LONGEST = 256
"""The most forwards of an evaluation that are watched."""


class ScriptThrottle(Observer):
    """Rests the watcher after `checked` updates. Wakes it for an evaluation if it has seen none."""

    def __init__(self, watcher: Watcher, checked: int) -> None:
        super().__init__(watcher.scene)
        self._watcher, self._checked = watcher, checked
        self._updates = self._forwards = 0
        self._resting = self._awake_again = self._evaluated = False

    def __enter__(self) -> ScriptThrottle:
        self.follow(nn.Module, "eval", before=self._evaluates)
        return self

    def update_ends(self, optimizer: Optimizer) -> None:
        self._updates += 1
        if self._updates == self._checked:
            self._rest()

    def model_called(self, model: nn.Module, args: Args) -> None:
        training = torch.is_grad_enabled() and model.training
        if self._awake_again:
            self._forwards += 1
            if training or self._forwards > _LONGEST:
                self._awake_again = False
                self._rest()
        elif not torch.is_grad_enabled() and self._is_trained(model):
            self._evaluates(model)
            if self._awake_again:
                self._watcher.bus.model_called(model, args)

    def _evaluates(self, model: nn.Module) -> None:
        """A model is put into evaluation mode, or runs without gradients."""
        if self._evaluated or self.scene.phases.is_deaf or not self._is_trained(model):
            return
        if self._resting:
            self._evaluated = self._awake_again = True
            self._watcher.look_again()
        elif not torch.is_grad_enabled():
            self._evaluated = True

    def _is_trained(self, model: nn.Module) -> bool:
        own = next(model.parameters(), None)
        return any(own is each for optimizer in self.scene.stepped for each in held(optimizer))

    def _rest(self) -> None:
        self._resting = True
        self._watcher.rest()
