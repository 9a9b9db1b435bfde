"""Finds the library that runs the loop, if the user's script only starts it, as `trainer.train()` does."""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.events.callers import library_call, user_lines
from surefoot.records.finding import Finding

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

    def place(self, finding: Finding, losses: set[str]) -> Finding:
        """The finding as it is; if it names the line that starts the library, then what a user can change.

        `losses` are the lines that compute the losses, if the finding is about them.
        """
        if not self.line or finding.where != self.line:
            return finding
        own = losses - {self.line}
        if len(own) == 1:
            return replace(finding, where=own.pop())
        remedy = f"{finding.remedy}; {self.library} does this: use its settings, or override its method"
        return replace(finding, where=f"{finding.where} ({self.library})", remedy=remedy)
