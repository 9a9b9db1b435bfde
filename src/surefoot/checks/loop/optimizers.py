"""Records which parameters each optimizer holds, and in which order optimizers make updates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch.optim import Optimizer

from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, held
from surefoot.checks.facts.loop import LoopFacts, Optimizing
from surefoot.checks.loop.loose_leaves import LooseLeaves


class Optimizers(Observer):
    """Records all optimizers that hold parameters of models that ran."""

    def __init__(self, scene: Scene, leaves: LooseLeaves) -> None:
        super().__init__(scene)
        self._leaves = leaves
        self._order: list[int] = []
        self._trainable: dict[Optimizer, int] = {}
        """For each optimizer: the largest number of parameters with requires_grad in any update."""

    def update_begins(self, optimizer: Optimizer) -> None:
        self._order.append(id(optimizer))
        trainable = sum(p.requires_grad for p in held(optimizer))
        self._trainable[optimizer] = max(trainable, self._trainable.get(optimizer, 0))

    def facts(self) -> Iterator[LoopFacts]:
        yield LoopFacts(optimizers=tuple(self._holding()))

    def _holding(self) -> Iterator[Optimizing]:
        names, models, updated = self.scene.names(), self.scene.phases.models, self.updated()
        loose = {leaf.shape for leaf in self._leaves.loose()}
        for optimizer in self.scene.optimizers:
            parameters = list(held(optimizer))
            trainable = [p for p in parameters if p.requires_grad]
            unreached = [p for p in trainable if p not in self.scene.reached]
            foreign = [p for p in unreached if p not in names or p.shape in loose]
            yield Optimizing(
                kind=type(optimizer).__name__,
                updates=self.scene.stepped.get(optimizer, 0),
                parameters=len(parameters),
                frozen=len(parameters) - self._trainable.get(optimizer, len(trainable)),
                foreign=tuple("x".join(map(str, p.shape)) for p in foreign) if models else (),
                reached=sum(p in self.scene.reached for p in trainable),
                of_models=any(p in names for p in parameters),
                maximizes=any(group.get("maximize", False) for group in optimizer.param_groups),
                doubly_held=tuple(self._doubly_held(optimizer, names)),
                moved=any(self._leaves.has_moved(p) for p in parameters if p not in updated),
                betas=_betas(optimizer),
            )

    def updated(self) -> set[torch.Tensor]:
        """The parameters of all optimizers that make updates."""
        return {p for each in self.scene.optimizers if self.scene.updates_of(each) for p in held(each)}

    def _doubly_held(self, optimizer: Optimizer, names: dict[torch.Tensor, str]) -> Iterator[str]:
        for other in self.scene.optimizers:
            if other is optimizer or other.param_groups is optimizer.param_groups:
                continue
            turns = [each for each in self._order if each in (id(optimizer), id(other))]
            switches = sum(a != b for a, b in pairwise(turns))
            if switches >= 3:
                shared = set(held(optimizer)).intersection(held(other))
                yield from (names.get(p, "?") for p in held(optimizer) if p in shared)


def _betas(optimizer: Optimizer) -> tuple[float, float] | None:
    found = optimizer.param_groups[0].get("betas") if optimizer.param_groups else None
    return (float(found[0]), float(found[1])) if isinstance(found, tuple | list) and len(found) == 2 else None
