"""Finds loops that set the same seed in every step."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.loop.forwards import random_state
from surefoot.checks.samples.unseeded_draws import GENERATORS

DRAWS = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_", "uniform_",
    "random_", "bernoulli", "bernoulli_", "multinomial",
}  # fmt: skip
_FEWEST = 3
"""At least this many updates must seed a generator other than torch's global one with the same number."""


class Reseeding(Observer):
    """Records the random state of every update: after seeding, at its first forward, and at each draw."""

    functions = DRAWS
    reads = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._states: dict[int, tuple[int, int]] = {}
        """By update: the state after seeding, and at the start of the first forward."""
        self._seeded: int | None = None
        self._drawn: set[int] = set()
        """The states of generators after each draw since the last update."""
        self._last_drawn: set[int] = set()
        self._redrawn = 0
        self._lengths: set[int] = set()
        """The lengths of the inputs of the running model."""
        self._others: dict[str, set[str]] = {}
        """The seeds of Python's and numpy's generators since the last update."""
        self._last_others: dict[str, set[str]] = {}
        self._fresh: dict[str, bytes] = {}
        """The states of the global generators right after seeding."""
        self._others_again = 0
        self._at: dict[str, int] = {}
        """The last update before which something was drawn, or other generators were seeded."""

    def __enter__(self) -> Reseeding:
        self.follow(torch, "manual_seed", after=self._seeds)
        for name, (module, _) in GENERATORS.items():
            self.follow(module, "seed", after=lambda _, *given, name=name, **__: self._seeds_other(name, given))
        self.follow(np.random, "default_rng", after=lambda _, *given, **__: self._seeds_other("default_rng", given))
        return self

    def _seeds(self, *_: object) -> None:
        if self.scene.close and not self.scene.phases.is_deaf:
            self._seeded = random_state()

    def _seeds_other(self, name: str, given: Args) -> None:
        if self.scene.close and torch.is_grad_enabled() and not self.scene.phases.is_deaf:
            self._others.setdefault(name, set()).add(str(given))
            if name in GENERATORS:
                self._fresh[name] = pickle.dumps(GENERATORS[name][1]())

    def model_called(self, model: nn.Module, args: Args) -> None:
        if not self.scene.close or not torch.is_grad_enabled():
            return
        self._lengths = {len(each) for each in tensors(args) if each.dim()}
        if self._seeded is not None:
            self._states.setdefault(self.scene.updates, (self._seeded, random_state()))
            self._seeded = None

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Hears that a torch function has returned."""
        if getattr(function, "__name__", "") not in DRAWS:
            return
        drew = isinstance(out, torch.Tensor) and out.device.type == "cpu" and out.numel() > 0
        if drew and self.scene.close and torch.is_grad_enabled():
            generator = kwargs.get("generator")
            if generator is None:
                self._drawn.add(random_state())
            elif not self.scene.phases.in_model() or (out.dim() and len(out) in self._lengths):
                self._drawn.add(digest(generator.get_state()))  # else a projection that is redrawn on purpose

    def update_ends(self, optimizer: Optimizer) -> None:
        if self._drawn:
            self._redrawn += self._follows("drawn") and not self._drawn.isdisjoint(self._last_drawn)
            self._drawn, self._last_drawn = set(), self._drawn
        if self._others:
            used = {name: given for name, given in self._others.items() if len(given) == 1 and self._has_drawn(name)}
            again = any(self._last_others.get(name) == given for name, given in used.items())
            self._others_again += self._follows("others") and again
            self._others, self._last_others = {}, used

    def _follows(self, what: str) -> bool:
        """Did the previous update of the same optimizer do so, too? Once per pass does not count."""
        before, self._at[what] = self._at.get(what, 0), self.scene.updates
        return self.scene.updates - before <= max(1, len(self.scene.stepped))

    def _has_drawn(self, name: str) -> bool:
        """Has a generator drawn since it was seeded? The loop's own generators are made to draw."""
        return name not in GENERATORS or pickle.dumps(GENERATORS[name][1]()) != self._fresh[name]

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(reseeded_updates=self._repeated())

    def _repeated(self) -> int:
        """How many updates drew what the one before had drawn."""
        seeded = sum(
            self._states.get(update - 1) == (seeded, drawn) and seeded != drawn
            for update, (seeded, drawn) in self._states.items()
        )
        others = self._others_again if self._others_again >= _FEWEST else 0
        return max(seeded, self._redrawn, others)
