"""Finds weights to which an adapter was added with another factor than the one it was trained with."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import Merge, ModelFacts
from surefoot.checks.models.adapters import Adapters, Pair, fitted, rows_of
from surefoot.events.callers import caller
from surefoot.torch_inside.modes import aside

_NEAR = 0.02
"""A merged weight is the first weight and a multiple of the product, but for this share of what was added."""


class MergedAdapters(Observer):
    """Compares the weights of models that are evaluated, and of files that are written, with those before training."""

    after = (Adapters,)
    stays = True

    def __init__(self, scene: Scene, adapters: Adapters) -> None:
        super().__init__(scene)
        self._adapters = adapters
        self.merges: dict[str, Merge] = {}
        self._looked: dict[int, int] = {}
        """At which update each model was last looked at."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        if torch.is_grad_enabled() or not self._adapters.pairs or self._looked.get(id(model)) == self.scene.updates:
            return
        self._looked[id(model)] = self.scene.updates
        self._compare(model.parameters())

    def saving(self, contents: Contents, file: object) -> None:
        if self._adapters.pairs:
            self._compare(tensors(contents.value))

    def settle(self) -> None:
        self._compare(pair.base for pair in self._adapters.pairs.values() if pair.base is not None)

    def _compare(self, weights: Iterable[torch.Tensor]) -> None:
        known = [pair for pair in self._adapters.pairs.values() if pair.factor is not None and pair.kept is not None]
        if not known:
            return
        shapes = {each.base.shape for each in known if each.base is not None}
        alike = [each for each in weights if each.shape in shapes and readable(each)]
        with aside():
            for pair in known:
                for product, weight in itertools.product(pair.products(), alike):
                    self._note(pair, weight, HOST.of(rows_of(product)).float())

    def _note(self, pair: Pair, weight: torch.Tensor, product: torch.Tensor) -> None:
        before, now = pair.kept, HOST.of(rows_of(weight))
        if before is None or pair.factor is None or pair.name in self.merges:
            return
        if now.shape != before.shape or now.dtype != before.dtype:
            return
        factor = fitted(now.float() - before.float(), product, _NEAR)
        if factor is not None:
            self.merges[pair.name] = Merge(pair.name, caller(), pair.factor, factor)

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(merges=tuple(self.merges.values()))
