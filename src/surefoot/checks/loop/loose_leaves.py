"""Finds tensors that collect gradients and belong to no model and no optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from surefoot.checks.engine.autograd_graph import Graph
from surefoot.checks.engine.living import living
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, fingerprint, fingerprints, readable, tensors
from surefoot.checks.engine.types import Args
from surefoot.checks.facts.models import Leaf, ModelFacts
from surefoot.checks.loop.forwards import Forwards

_PRINTED = 64
"""The number of values that are hashed to see whether a tensor changes."""


class LooseLeaves(Observer):
    """Records every leaf of every graph: how often a backward reached it, and its first values."""

    after = (Forwards,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._leaves: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._prints: dict[int, int] = {}
        self._inputs: set[int] = set()
        """Tensors with requires_grad that were inputs of a model, or that part of a loss is differentiated by."""

    def model_called(self, model: nn.Module, args: Args) -> None:
        self.note_inputs(tensors(args))

    def note_inputs(self, given: Iterable[torch.Tensor]) -> None:
        self._inputs |= {id(each) for each in given if each.requires_grad and each.is_leaf}

    def graph_seen(self, graph: Graph) -> None:
        new = list[torch.Tensor]()
        for leaf in graph.leaves:
            known, count = self._leaves.get(id(leaf), (None, 0))
            if known is None or known() is not leaf:
                count = 0  # another tensor had this id, and is gone
            self._leaves[id(leaf)] = weakref.ref(leaf), count + 1
            if self.scene.close and not count and readable(leaf):
                new.append(leaf)
        self._prints |= zip(map(id, new), fingerprints(new, _PRINTED), strict=True)

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(leaves=tuple(self._collecting()))

    def _collecting(self) -> Iterator[Leaf]:
        """Tensors outside all models and optimizers that accumulate gradients repeatedly."""
        loose = list(self.loose())
        owned = _registered(loose)
        for leaf in loose:
            count = self._leaves[id(leaf)][1]
            fixed = count >= 3 and self._prints.get(id(leaf)) == fingerprint(leaf, _PRINTED)
            is_input = id(leaf) in self._inputs  # for example the points at which derivatives are taken
            path = "" if is_input else self._path(leaf)
            yield Leaf(tuple(leaf.shape), count, path, fixed and not is_input, owned.get(leaf, ""))

    def loose(self) -> Iterator[torch.Tensor]:
        """The tensors themselves."""
        known = self.scene.optimized() | set(self.scene.names())
        for ref, count in self._leaves.values():
            leaf = ref()
            if leaf is not None and leaf not in known and count >= 2 and leaf.grad is not None:
                yield leaf

    def has_moved(self, leaf: torch.Tensor) -> bool:
        """Did its values change since a backward first reached it?"""
        before = self._prints.get(id(leaf))
        return before is not None and fingerprint(leaf, _PRINTED) != before

    def _path(self, leaf: torch.Tensor) -> str:
        for model, prefix in self.scene.phases.models.items():
            for owner, module in model.named_modules():
                for name, value in vars(module).items():
                    inside = value if isinstance(value, list | tuple) else [value]
                    if any(each is leaf for each in inside):
                        return f"{prefix}{owner}.{name}".lstrip(".")
        return ""


def _registered(leaves: list[torch.Tensor]) -> dict[torch.Tensor, str]:
    """The names of those leaves that are registered parameters of some module."""
    wanted = {each for each in leaves if isinstance(each, nn.Parameter)}
    modules = living(nn.Module) if wanted else []
    own = ((each, name, p) for each in modules for name, p in each.__dict__.get("_parameters", {}).items())
    return {p: f"{type(module).__name__}.{name}" for module, name, p in own if p in wanted}
