"""Compares modules that activation checkpointing runs again with their first run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.gradients import GradientFacts, Recomputation
from surefoot.checks.loop.forwards import Forwards
from surefoot.torch_inside.modes import aside
from surefoot.world.device import widest

_ALIKE = 1e-4


class Recomputations(Observer):
    """Finds differences between a recomputation and the forward.

    Recomputation stops as soon as backward has what it needs, which may be in the middle of a module. So inputs are
    compared, too. Both are recorded from the first recomputation on.
    """

    after = (Forwards,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.differing: dict[str, Recomputation] = {}
        self._happens = self._graded = False
        self._sizes: dict[tuple[nn.Module, str], list[float]] = {}
        """The sizes of every call in the forward. Recomputation may change the order of repeated calls."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._graded = torch.is_grad_enabled()

    def module_begins(self, module: nn.Module, args: Args) -> None:
        if args:
            self._note(module, "input", args[0])

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        self._note(module, "output", output)

    def backward_ends(self) -> None:
        self._sizes = {}

    def _note(self, module: nn.Module, side: str, value: object) -> None:
        again = self.scene.phases.recomputing()
        self._happens |= again
        if not self._happens or not self.scene.close or not (again or self._graded):
            return
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not readable(value):
            return
        before = self._sizes.setdefault((module, side), [])
        if again and not before:
            return
        with aside():
            size = float(torch.linalg.vector_norm(value.detach(), dtype=widest(value.device)))
        if not again:
            before.append(size)
        elif (difference := min(abs(size - each) / (abs(each) + 1e-12) for each in before)) > _ALIKE:
            name = self.scene.phases.names.get(module, type(module).__name__)
            self.differing.setdefault(name, Recomputation(name, difference))

    def facts(self) -> Iterator[GradientFacts]:
        yield GradientFacts(recomputations=tuple(self.differing.values()))
