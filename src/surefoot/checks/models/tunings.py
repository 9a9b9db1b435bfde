"""Tells which optimizers train a model with weights from elsewhere, whole or by adapters."""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held
from surefoot.checks.facts.models import ModelFacts, Tuning
from surefoot.checks.loop.origins import origin
from surefoot.checks.models.adapters import Adapters


class Tunings(Observer):
    """Weighs what each optimizer trains against the models: most of an optimizer, or most of a model, names it."""

    def __init__(self, scene: Scene, adapters: Adapters) -> None:
        super().__init__(scene)
        self._adapters = adapters

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(tunings=tuple(self._tunings()))

    def _tunings(self) -> Iterator[Tuning]:
        thin, trained = self._adapters.trained(), self.scene.trained
        for number, optimizer in enumerate(self.scene.optimizers):
            own = {each for each in held(optimizer) if each in trained}
            for model in self.scene.phases.models:
                whole = [each for each in model.parameters() if each in own]
                elements = sum(each.numel() for each in whole)
                if thin & own and 2 * sum(each.numel() for each in thin & own) >= sum(each.numel() for each in own):
                    yield Tuning(number, self.scene.name(model), "adapters")
                    break
                if 2 * elements >= sum(each.numel() for each in model.parameters()) and elements and origin(model):
                    yield Tuning(number, self.scene.name(model), "all weights")
                    break
