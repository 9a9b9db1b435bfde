"""Decides when a script is watched: in its first updates and evaluation, and where it begins another model."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import held
from surefoot.checks.engine.types import Args
from surefoot.checks.watcher import Watcher
from surefoot.events.budget import Budget

_LONGEST = 256
"""The most forwards of an evaluation that are watched."""


_LONELY, _AGAIN = 4, 8
"""After this many updates in a row without a forward of any known model, this many are watched."""
_MOST_WAKES = 2
FEWEST_READ, FEWEST = 6, 24
"""However long it takes, tensors are read in this many updates, and this many updates are watched."""
_FEWEST_FORWARDS = 8
"""However long it takes, this many forwards of an evaluation are watched."""


class ScriptThrottle(Observer):
    """Rests the watcher after `checked` updates, or earlier if the budget is spent. Wakes it for an evaluation if it
    has seen none, and for updates that no longer belong to a model that ran: then the script trains another model.
    """

    def __init__(self, watcher: Watcher, checked: int, budget: Budget | None = None) -> None:
        super().__init__(watcher.scene)
        self._watcher, self._checked, self._budget = watcher, checked, budget
        self._updates = self._forwards = 0
        self._resting = self._awake_again = self._evaluated = False
        self._lonely = self._wakes = self._until = 0

    def __enter__(self) -> ScriptThrottle:
        self.follow(nn.Module, "eval", before=self._evaluates)
        return self

    def update_ends(self, optimizer: Optimizer) -> None:
        self._updates += 1
        self._lonely += 1
        if self._updates in (self._checked, self._until):
            self._rest()
        elif self._resting and not self._awake_again and self._lonely > _LONELY and self._wakes < _MOST_WAKES:
            self._wakes += 1
            self._until, self._resting = self._updates + _AGAIN, False
            self._watcher.look_again()
            self.scene.look_again()  # what it sees belongs to another training
        elif not self._resting and self._is_spent():
            self._look_less()

    def _is_spent(self) -> bool:
        return self._budget is not None and self._budget.is_spent(self.scene.failsafe.seconds)

    def _look_less(self) -> None:
        """The budget is spent: first no more tensors are read, then nothing is watched."""
        if self.scene.close:
            if self.scene.updates - self.scene.training >= FEWEST_READ:
                self.scene.look_away()
        elif self._updates >= FEWEST and self._until < self._updates:
            self._rest()

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._lonely = 0
        training = torch.is_grad_enabled() and model.training
        if self._awake_again:
            self._forwards += 1
            spent = self._forwards > _FEWEST_FORWARDS and self._is_spent()
            if training or spent or self._forwards > _LONGEST:
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
