"""Tells of every parameter of the models that ran what reaches it, holds it and moves it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.facts.models import ModelFacts, Parameter
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients
from surefoot.checks.losses.loss_calls import Losses
from surefoot.checks.models.disturb_inputs import matters


class Parameters(Observer):
    """Joins what other observers know of a parameter. A probe moves those that ran but that no loss of data reached."""

    def __init__(self, scene: Scene, forwards: Forwards, gradients: Gradients, losses: Losses) -> None:
        super().__init__(scene)
        self._forwards, self._gradients, self._losses = forwards, gradients, losses
        self._untaught: dict[nn.Module, dict[torch.Tensor, Parameter]] = {}
        """By model, the parameters that a probe moves, with the facts that it completes."""

    def facts(self) -> Iterator[ModelFacts]:
        self._untaught = {}
        yield ModelFacts(parameters=tuple(self._parameters()))

    def probed(self) -> tuple[()]:
        """Completes the facts that were handed over: does the loss depend on these parameters?"""
        untaught, self._untaught = self._untaught, {}
        for model, records in untaught.items():
            call = self._forwards.captured.get(model)
            matter = matters(self.scene, call, list(records)) if call is not None and records else {}
            for parameter, record in records.items():
                record.in_loss = matter.get(parameter)
        return ()

    def _parameters(self) -> Iterator[Parameter]:
        optimized, reached, trained = self.scene.optimized(), self.scene.reached, self.scene.trained
        taught = reached - self.scene.penalized
        unused = [(loss, leaves) for loss, leaves in self._losses.unused if not loss.weights]
        only_in = {leaf: loss.where for loss, leaves in unused for leaf in leaves}
        for model, prefix in self.scene.phases.models.items():
            ran, resting = _of(model, self._forwards.executed), _of(model, self._forwards.resting)
            lone = {p for p in ran if (p.requires_grad or p in trained) and p in optimized and p not in taught}
            feeds = model in self._forwards.feeding
            records = {
                p: Parameter(
                    prefix + name,
                    self.scene.name(model),
                    p.requires_grad or p in trained,
                    p in reached,
                    p in optimized,
                    executed=p in ran,
                    in_loss=True if feeds and p in lone else None,
                    elements=p.numel(),
                    follows=p in self._gradients.followers,
                    penalized=p in self.scene.penalized,
                    only_in=only_in.get(p, "") if p not in reached else "",
                    moved=((p in lone and p not in reached) or p not in optimized) and self._forwards.moved(p),
                    resting=p in resting,
                )
                for name, p in model.named_parameters()
            }
            if not feeds:
                self._untaught[model] = {p: record for p, record in records.items() if p in lone}
            yield from records.values()


def _of(model: nn.Module, modules: Collection[nn.Module]) -> set[torch.Tensor]:
    """The parameters that those of a model's modules hold themselves."""
    return {p for each in model.modules() if each in modules for p in each.parameters(recurse=False)}
