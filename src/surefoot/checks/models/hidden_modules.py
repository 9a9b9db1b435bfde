"""Finds modules with parameters that a model uses but does not register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import HiddenModule, ModelFacts
from surefoot.checks.loop.forwards import Forwards
from surefoot.checks.loop.gradients import Gradients


class HiddenModules(Observer):
    """Finds modules in plain containers of a model, and modules that run inside a model without belonging to it."""

    after = (Forwards, Gradients)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._registered: set[nn.Module] = set()
        self._strangers: dict[tuple[str, str], tuple[int, list[nn.Parameter]]] = {}
        """Modules that ran in a model that does not register them, by place and class."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        self._registered = set(model.modules()) if self.scene.close else set()

    def module_called(self, module: nn.Module, args: Args, output: object) -> None:
        if not self._registered or module in self._registered or not torch.is_grad_enabled():
            return
        own = [each for each in module.parameters(recurse=False) if each.requires_grad]
        if own and isinstance(output, torch.Tensor) and output.requires_grad and not self.scene.phases.recomputing():
            key = self.scene.phases.module(), type(module).__name__
            self._strangers.setdefault(key, (sum(each.numel() for each in own), own))

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(hidden_modules=tuple(self._modules()))

    def _modules(self) -> Iterator[HiddenModule]:
        optimized = self.scene.optimized()
        contained = list(self._contained(optimized))
        yield from contained
        if not contained:
            for (path, kind), (parameters, own) in self._strangers.items():
                reached = any(each in self.scene.reached for each in own)
                yield HiddenModule(path or kind, kind, parameters, reached, any(each in optimized for each in own))

    def _contained(self, optimized: set[torch.Tensor]) -> Iterator[HiddenModule]:
        for model, prefix in self.scene.phases.models.items():
            registered = set(model.modules())
            for owner, module in model.named_modules():
                for path, hidden in _contained(module):
                    trainable = [p for p in hidden.parameters() if p.requires_grad]
                    if hidden not in registered and trainable:
                        yield HiddenModule(
                            path=f"{prefix}{owner}.{path}".lstrip("."),
                            kind=type(hidden).__name__,
                            parameters=sum(p.numel() for p in trainable),
                            reached=any(p in self.scene.reached for p in trainable),
                            optimized=any(p in optimized for p in trainable),
                        )


def _contained(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in plain lists, tuples, sets and dicts among a module's attributes, up to three levels deep."""
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, nn.Module):
            yield from _inside(name, value, 3)


def _inside(path: str, value: object, depth: int) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        yield path, value
    elif isinstance(value, list | tuple | set | dict) and depth:
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _inside(f"{path}[{key!r}]", item, depth - 1)
