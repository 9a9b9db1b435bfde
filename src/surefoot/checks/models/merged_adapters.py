"""Finds weights to which an adapter was added with another factor than the one it was trained with."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from surefoot.checks.engine.file_contents import Contents
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import Merge
from surefoot.checks.models.adapters import Adapters, fitted
from surefoot.events.autograd import aside
from surefoot.events.callers import caller

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
        self._looked: set[tuple[int, int]] = set()

    def model_called(self, model: nn.Module, args: Args) -> None:
        if torch.is_grad_enabled() or not self._adapters.pairs or (id(model), self.scene.updates) in self._looked:
            return
        self._looked.add((id(model), self.scene.updates))
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
        shapes = {each.kept.shape for each in known if each.kept is not None}
        alike = [each for each in weights if each.shape in shapes and readable(each)]
        with aside():
            for pair in known:
                product, before = pair.product().float(), pair.kept
                for weight in alike:
                    if before is None or weight.shape != before.shape or weight.dtype != before.dtype:
                        continue
                    factor = fitted(weight.detach().float() - before.float(), product, _NEAR)
                    if factor is not None and pair.factor is not None and pair.name not in self.merges:
                        self.merges[pair.name] = Merge(pair.name, caller(), pair.factor, factor)
