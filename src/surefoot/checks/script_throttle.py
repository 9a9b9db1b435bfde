"""Decides when a script is watched: in its first updates and evaluation, and where it begins another model."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import held
from surefoot.checks.engine.types import Args
from surefoot.checks.watcher import Watcher
from surefoot.events.callers import caller
from surefoot.events.failsafe import Failsafe
from surefoot.events.watch_budget import PREPARING, Budget

_LONGEST = 256
"""The most forwards of an evaluation that are watched."""


_LONELY, _AGAIN = 4, 8
"""After this many updates in a row without a forward of any known model, this many are watched."""
_MOST_WAKES = 2
FEWEST_READ, FEWEST = 6, 24
"""Tensors are read in this many updates, and this many updates are watched, unless that takes `_FAR` the budget."""
LEAST_READ, LEAST = 3, 8
"""However long it takes, tensors are read in this many updates, and this many updates are watched."""
_FAR = 1.25
_AROUND = 1.5
"""What looking adds, as a multiple of the seconds of its callbacks: torch's way to them takes a third of all."""
_FEWEST_FORWARDS = 8
"""However long it takes, this many forwards of an evaluation are watched."""
_MOST_LINES = 6
"""An evaluation is watched for each line that calls `eval()`, or a model without gradients, up to this many lines."""


class ScriptThrottle(Observer):
    """Rests the watcher after `checked` updates, or earlier if the budget is spent.

    Wakes it for an evaluation at a line where it has seen none, and for updates that no longer belong to a model that
    ran: then the script trains another model. The seconds that measuring takes `beside` the checks count too.
    """

    def __init__(
        self, watcher: Watcher, checked: int, budget: Budget | None = None, *, beside: Failsafe | None = None
    ) -> None:
        super().__init__(watcher.scene)
        self._watcher, self._checked, self._budget, self._beside = watcher, checked, budget, beside
        self._updates = self._forwards = 0
        self._resting = self._awake_again = False
        self._evaluated: set[str] = set()
        """The lines that evaluate, as far as an evaluation of theirs was watched."""
        self._eval_at = ""
        """The last line that put a model into evaluation mode."""
        self._lonely = self._wakes = self._until = 0
        if budget is not None:
            self.scene.preparing = PREPARING

    def __enter__(self) -> ScriptThrottle:
        self.follow(nn.Module, "eval", before=self._mode_set)
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

    def _is_spent(self, times: float = 1.0) -> bool:
        if self._budget is None:
            return False
        seconds = self.scene.failsafe.seconds + (0.0 if self._beside is None else self._beside.seconds)
        return self._budget.is_spent(_AROUND * seconds / times)

    def _look_less(self) -> None:
        """The budget is spent: first no more tensors are read, then nothing is watched."""
        self.scene.hurried = True
        read, watched = (LEAST_READ, LEAST) if self._is_spent(_FAR) else (FEWEST_READ, FEWEST)
        if self.scene.close:
            if self.scene.updates - self.scene.training >= read:
                self.scene.look_away()
        elif self._updates >= watched and self._until < self._updates:
            self._rest()

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._lonely = 0
        training = torch.is_grad_enabled() and model.training
        if self._awake_again:
            self._forwards += 1
            if not training:
                self._evaluated.add(caller())
            spent = self._forwards > _FEWEST_FORWARDS and self._is_spent()
            if training or spent or self._forwards > _LONGEST:
                self._awake_again = False
                self._rest()
        elif not torch.is_grad_enabled() and self._is_trained(model):
            self._evaluates(model)
            if self._awake_again:
                self._watcher.bus.model_called(model, args)

    def _mode_set(self, model: nn.Module) -> None:
        """A model is put into evaluation mode: what follows is an evaluation, unless the script only looks at it."""
        if len(self._evaluated) < _MOST_LINES and self._is_trained(model):
            self._eval_at = caller()
            self._evaluates(model)

    def _evaluates(self, model: nn.Module) -> None:
        """A model is put into evaluation mode, or runs without gradients."""
        if len(self._evaluated) >= _MOST_LINES or self.scene.phases.is_deaf or not self._is_trained(model):
            return
        where = caller()
        if where in self._evaluated:
            return
        if self._resting:
            self._evaluated.add(where)
            self._forwards, self._awake_again = 0, True
            self._watcher.look_again()
        elif not torch.is_grad_enabled():
            self._evaluated |= {where, self._eval_at}
            if not self.scene.close:
                self.scene.look_closely()  # the budget is spent, but not on an evaluation

    def _is_trained(self, model: nn.Module) -> bool:
        own = next(model.parameters(), None)
        return any(own is each for optimizer in self.scene.stepped for each in held(optimizer))

    def _rest(self) -> None:
        self._resting = True
        self._watcher.rest()
