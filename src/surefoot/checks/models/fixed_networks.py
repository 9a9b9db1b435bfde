"""Finds networks that never change but run in training mode in every step, such as a teacher."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, digest, fingerprints, readable, tensors
from surefoot.checks.engine.types import Kwargs
from surefoot.checks.facts.models import FixedNetwork, ModelFacts
from surefoot.checks.loop.modes import active

_VALUES = 256
"""How many values of each parameter are compared."""


@dataclass
class _Runs:
    """The forwards of one network in training mode, which lead to no update of it."""

    model: weakref.ref[nn.Module]
    name: str
    weights: int
    active: tuple[str, ...]
    updates: set[int] = field(default_factory=set)
    changed: bool = False
    repeated: bool = False
    """It ran twice on one batch: its randomness is wanted."""
    last: int = 0
    """A hash of the last inputs."""


class FixedNetworks(Observer):
    """Records forwards in training mode of networks that get no gradient."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._runs: dict[int, _Runs] = {}

    def model_returned(self, model: nn.Module, args: object, kwargs: Kwargs, output: object) -> None:
        if not self.scene.close or not model.training:
            return
        found = active(model)
        if torch.is_grad_enabled():  # statistics of frozen layers have a check of their own
            found = tuple(each for each in found if "Dropout" in each)
            if any(each.requires_grad for each in model.parameters()):
                return
        if found:
            given = HOST.all_of([each for each in tensors((args, kwargs)) if readable(each)])
            self._note(model, found, hash(tuple(map(digest, given))))

    def _note(self, model: nn.Module, found: tuple[str, ...], given: int) -> None:
        weights, known = _weights(model), self._runs.get(id(model))
        if known is None or known.model() is not model:
            known = self._runs[id(model)] = _Runs(weakref.ref(model), self.scene.name(model), weights, found)
        known.repeated |= given == known.last and self.scene.updates in known.updates
        known.changed |= weights != known.weights
        known.updates.add(self.scene.updates)
        known.last = given

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(fixed_networks=tuple(self._networks()))

    def _networks(self) -> Iterator[FixedNetwork]:
        for runs in self._runs.values():
            alive = runs.model()
            changed = runs.changed or (alive is not None and _weights(alive) != runs.weights)
            each_step = 2 * len(runs.updates) > max(runs.updates) - min(runs.updates)
            if not changed and not runs.repeated and each_step:
                yield FixedNetwork(runs.name, runs.active, len(runs.updates))


def _weights(model: nn.Module) -> int:
    """A hash of some values of each parameter."""
    return hash(tuple(fingerprints(filter(readable, model.parameters()), _VALUES)))
