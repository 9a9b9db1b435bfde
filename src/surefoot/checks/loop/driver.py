"""Finds the library that runs the loop, if the user's script only starts it, as `trainer.train()` does."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.events.callers import library_call, user_lines

_DEEP = 50


class Driver(Observer):
    """Compares the user's line that a forward runs in with the one that an update runs in."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._forward: tuple[tuple[str, int], ...] = ()
        self.line = ""
        """The user's line inside which a library calls the model and makes the updates; empty if there is none."""
        self.library = ""
        """The function that it calls there, as `transformers Trainer.train`."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        if not self.scene.updates:
            self._forward = user_lines(_DEEP)

    def update_begins(self, optimizer: Optimizer) -> None:
        if self.scene.updates or self.line:
            return
        place, called = library_call()
        if called and place in self._forward:
            self.line, self.library = f"{place[0]}:{place[1]}", called
