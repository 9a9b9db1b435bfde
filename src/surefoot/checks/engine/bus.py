"""The bus: tells every observer the events for which it defines a method, and keeps the counts of the scene."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.autograd_graph import walk
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import EVENTS, Observer, hears
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args, Kwargs
from surefoot.events.listener import Listener


class Bus(Listener):
    """A listener of `Phases`. While it is `resting`, it sends events only to observers that stay."""

    def __init__(self, scene: Scene, observers: Iterable[Observer]) -> None:
        self._scene, self._observers, self.resting = scene, list(observers), False
        scene.bus = self
        self._listener: Listener | None = None
        told = {event: [each for each in self._observers if hears(type(each), event)] for event in EVENTS}
        self._all = {event: [getattr(each, event) for each in some] for event, some in told.items()}
        self._staying = {event: [getattr(each, event) for each in some if each.stays] for event, some in told.items()}

    def hearing(self, event: str) -> list[Callable[..., None]]:
        """The methods that are currently called for an event, in order."""
        return (self._staying if self.resting else self._all)[event]

    def listen(self, *, resting: bool = False) -> None:
        """Listens to the phases. While `resting`, it hears only what observers that stay need, and counts updates."""
        phases, before = self._scene.phases, self._listener
        stays = {"update_begins", "update_ends", *(event for event, hearing in self._staying.items() if hearing)}
        self.resting = resting
        self._listener = self._scene.failsafe.listener(self, only=stays if resting else None)
        if before in phases.listeners:  # it keeps its place among the others
            phases.listeners = [self._listener if each is before else each for each in phases.listeners]
        else:
            phases.listeners.append(self._listener)

    def tell(self, event: str, *args: object) -> None:
        """Calls the method for this event of every observer that has one."""
        for method in self.hearing(event):
            method(*args)

    def settle(self) -> None:
        """Tells all observers that facts are about to be collected, even while resting."""
        HOST.settle()
        HOST.forget()
        for each in self._observers:
            each.settle()

    def model_found(self, model: nn.Module, prefix: str) -> None:
        self.tell("model_found", model, prefix)

    def model_called(self, model: nn.Module, args: Args) -> None:
        self.tell("model_called", model, args)

    def module_begins(self, module: nn.Module, args: Args) -> None:
        self.tell("module_begins", module, args)

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        self.tell("module_called", module, args, output)

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        self.tell("model_returned", model, args, kwargs, output)

    def backward_begins(self, losses: object) -> None:
        if not self.resting:
            self.gradient_asked(losses)
        self.tell("backward_begins", losses)

    def gradient_asked(self, losses: Any, *, asked: bool = False) -> None:
        """A gradient is about to be computed: by a backward, or by `torch.autograd.grad` if `asked`."""
        graph = walk([losses] if isinstance(losses, torch.Tensor) else list(losses))
        graph.asked = asked
        with HOST.moment():
            self.tell("graph_seen", graph)
        graph.losses = []  # observers may keep the graph but must not keep the losses alive
        self._scene.backwards += 1

    def backward_ends(self) -> None:
        self.tell("backward_ends")

    def update_begins(self, optimizer: Optimizer) -> None:
        if not self.resting and optimizer not in self._scene.optimizers:
            self._scene.optimizers.append(optimizer)
        self.tell("update_begins", optimizer)
        self._scene.updating = None if self.resting else optimizer

    def update_ends(self, optimizer: Optimizer) -> None:
        self._scene.updating = None
        self.tell("update_ends", optimizer)
        self._scene.count(optimizer)
        HOST.forget()

    def update_left_out(self, optimizer: Optimizer) -> None:
        self.tell("update_left_out", optimizer)
        self._scene.leave_out(optimizer)
