"""Finds draws from Python's and numpy's generators that the script never seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.samples import SampleFacts

GENERATORS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "random": (random, random.getstate),
    "numpy.random": (np.random, lambda: np.random.get_state(legacy=True)),
}
"""The global generators that torch does not seed: by name, the module that seeds it and its state."""


class UnseededDraws(Observer):
    """Follows the global generators of Python and numpy."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._torch_seeded = False
        self._seeded: set[str] = set()
        self._before = {name: str(state()) for name, (_, state) in GENERATORS.items()}

    def __enter__(self) -> UnseededDraws:
        self.follow(torch, "manual_seed", after=self._seeds_torch)
        for name, (module, _) in GENERATORS.items():
            self.follow(module, "seed", after=lambda *_, name=name, **__: self._seeded.add(name))
        return self

    def _seeds_torch(self, *_: object, **__: object) -> None:
        self._torch_seeded |= not self.scene.phases.is_deaf

    def facts(self) -> Iterator[SampleFacts]:
        yield SampleFacts(unseeded_generators=self._unseeded())

    def _unseeded(self) -> tuple[str, ...]:
        """The generators that were used and never seeded, in a loop that seeds torch."""
        if not self._torch_seeded:
            return ()
        return tuple(
            name
            for name, (_, state) in GENERATORS.items()
            if name not in self._seeded and str(state()) != self._before[name]
        )
