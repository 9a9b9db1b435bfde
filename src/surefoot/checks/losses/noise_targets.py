"""Finds random tensors used as a target that the model never saw as input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.engine.weak_notes import WeakNotes
from surefoot.checks.facts.samples import Parted, SampleFacts
from surefoot.checks.samples.index_pairs import IndexPairs
from surefoot.checks.samples.pairs import Pairs
from surefoot.events.callers import caller

_NORMAL = {"randn", "randn_like", "normal", "normal_"}
_FEWEST_ELEMENTS = 4
"""Smaller targets may be noisy on purpose, as for a discriminator."""
_FEWEST = 3


class NoiseTargets(Observer):
    """Follows normal noise from the draw to its first use."""

    after = (IndexPairs, Pairs)  # a rule reports the first of their facts, and an index says more than a value
    reads = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._unused: WeakNotes[None] = WeakNotes()
        self._lone: list[str] = []
        self._noise_enters = False
        """A model got plain noise as input: there is nothing to learn, on purpose."""

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Records new noise, and the first use of known noise."""
        if not self.scene.close or self.scene.phases.in_model():
            return
        if getattr(function, "__name__", "") in _NORMAL and isinstance(out, torch.Tensor):
            self._unused[out] = None
        elif self._unused:
            self._use(args)

    def _use(self, given: object) -> bool:
        """Marks noise among these tensors as used. Returns whether there was any."""
        noise = [each for each in tensors(given) if each in self._unused]
        for each in noise:
            self._unused.forget(each)
        return bool(noise)

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._noise_enters |= bool(self._unused) and self._use(args)

    def target(self, target: Any) -> None:
        """Records the target of a loss if it is unused noise."""
        if target in self._unused and target.dim() > 1 and target[0].numel() >= _FEWEST_ELEMENTS:
            self._lone.append(caller())

    def update_ends(self, optimizer: Optimizer) -> None:
        self._unused = WeakNotes()

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(parted=tuple(self._parted()))

    def _parted(self) -> Iterator[Parted]:
        """The line whose target is unused noise, step after step."""
        if len(self._lone) >= _FEWEST and not self._noise_enters:
            yield Parted(self._lone[0], "in every step the target was noise that no input was made from")
