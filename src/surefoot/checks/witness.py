"""Witness: follows a loop and gathers evidence. It reads, and changes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from surefoot.checks.evidence import Backward, Evidence, Forward, HiddenModule, Parameter, Update
from surefoot.phases import Listener, Phases, caller, writes

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_SHAPE_ONLY = (
    "View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Expand",
    "Clone", "ToCopy", "Slice", "Select", "Alias", "Contiguous",
)  # fmt: skip


@dataclass
class _Mark:
    """A gradient that an update has used: the object, and how often it had been written by then."""

    gradient: weakref.ref[torch.Tensor]
    writes: int
    carried: bool = False

    def stands(self, gradient: torch.Tensor | None) -> bool:
        return gradient is not None and self.gradient() is gradient and writes(gradient) == self.writes


class Witness(Listener):
    """A listener of `Phases`. Optimizers given beforehand count as holding their parameters at once."""

    def __init__(self, phases: Phases, *optimizers: Optimizer) -> None:
        self.phases = phases
        self.optimizers: list[Optimizer] = list(optimizers)
        self._models: dict[nn.Module, str] = {}
        self._reached: set[torch.Tensor] = set()
        self._forwards: list[tuple[nn.Module, Forward]] = []
        self._backwards: list[tuple[frozenset[torch.Tensor], Backward]] = []
        self._updates: list[Update] = []
        self._marks: dict[torch.Tensor, _Mark] = {}
        self._forwards_settled = self._backwards_settled = 0

    def evidence(self) -> Evidence:
        """What was seen so far."""
        return Evidence(
            parameters=tuple(self._parameters()),
            hidden_modules=tuple(self._hidden_modules()),
            forwards=tuple(forward for _, forward in self._forwards),
            backwards=tuple(self._judged(reached, backward) for reached, backward in self._backwards),
            updates=tuple(self._updates),
        )

    def model_found(self, model: nn.Module, prefix: str) -> None:
        self._models[model] = prefix

    def forward_begins(self, model: nn.Module) -> None:
        if torch.is_grad_enabled():
            switching = tuple(name for name, module in model.named_modules() if _mode_dependent(module))
            name = self.phases.names.get(model) or type(model).__name__
            self._forwards.append((model, Forward(name, model.training, switching, trained=False)))

    def backward_begins(self, losses: Any) -> None:
        tensors = [losses] if isinstance(losses, torch.Tensor) else list(losses)
        leaves, softmaxes = _walk(tensors)
        self._reached |= leaves
        seen = Backward(
            where=caller(),
            differentiable=any(tensor.requires_grad for tensor in tensors),
            reaches_optimized=False,
            followed_by_update=False,
            double_softmax=tuple(self.phases.maker(node) or "the loss" for node in softmaxes),
        )
        self._backwards.append((frozenset(leaves), seen))
        for parameter, mark in list(self._marks.items()):
            if mark.stands(parameter.grad):
                mark.carried = True
            else:
                del self._marks[parameter]

    def backward_ends(self) -> None:
        for parameter, mark in self._marks.items():
            if mark.carried and parameter.grad is not None:
                mark.writes = writes(parameter.grad)

    def update_begins(self, optimizer: Optimizer) -> None:
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        held = set(_parameters_of(optimizer))
        names = self._names()
        carried = tuple(names.get(p, "?") for p in held if p in self._marks and self._marks[p].carried)
        self._updates.append(Update(len(self._updates) + 1, caller(), len(held), carried))
        for index in range(self._forwards_settled, len(self._forwards)):
            model, forward = self._forwards[index]
            if held.intersection(model.parameters()):
                self._forwards[index] = model, replace(forward, trained=True)
        for index in range(self._backwards_settled, len(self._backwards)):
            leaves, backward = self._backwards[index]
            self._backwards[index] = leaves, replace(backward, followed_by_update=True)
        self._forwards_settled, self._backwards_settled = len(self._forwards), len(self._backwards)

    def update_ends(self, optimizer: Optimizer) -> None:
        for parameter in _parameters_of(optimizer):
            if parameter.grad is not None:
                self._marks[parameter] = _Mark(weakref.ref(parameter.grad), writes(parameter.grad))

    def _optimized(self) -> set[torch.Tensor]:
        return {parameter for optimizer in self.optimizers for parameter in _parameters_of(optimizer)}

    def _judged(self, leaves: frozenset[torch.Tensor], backward: Backward) -> Backward:
        return replace(backward, reaches_optimized=not leaves.isdisjoint(self._optimized()))

    def _names(self) -> dict[torch.Tensor, str]:
        return {p: prefix + name for model, prefix in self._models.items() for name, p in model.named_parameters()}

    def _parameters(self) -> Iterator[Parameter]:
        optimized = self._optimized()
        for parameter, name in self._names().items():
            yield Parameter(name, parameter.requires_grad, parameter in self._reached, parameter in optimized)

    def _hidden_modules(self) -> Iterator[HiddenModule]:
        optimized = self._optimized()
        for model, prefix in self._models.items():
            registered = set(model.modules())
            for owner, module in model.named_modules():
                for path, hidden in _contained(module):
                    trainable = [p for p in hidden.parameters() if p.requires_grad]
                    if hidden not in registered and trainable:
                        yield HiddenModule(
                            path=f"{prefix}{owner}.{path}".lstrip("."),
                            kind=type(hidden).__name__,
                            parameters=sum(p.numel() for p in trainable),
                            reached=any(p in self._reached for p in trainable),
                            optimized=any(p in optimized for p in trainable),
                        )


def _parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _mode_dependent(module: nn.Module) -> bool:
    """Does evaluation mode change what this module computes?"""
    if isinstance(module, _DROPOUT):
        return module.p > 0
    if isinstance(module, _BATCH_NORM):
        return module.track_running_stats
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0


def _contained(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in the plain lists, tuples, sets and dicts among a module's own attributes."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, list | tuple | set):
            items: Any = enumerate(value)
        elif isinstance(value, dict):
            items = value.items()
        else:
            continue
        for key, item in items:
            if isinstance(item, nn.Module):
                yield f"{name}[{key!r}]", item


def _walk(losses: list[torch.Tensor]) -> tuple[set[torch.Tensor], list[Any]]:
    """The leaves that a loss's graph ends in, and the softmax nodes that go straight into a log-softmax."""
    leaves = {loss for loss in losses if loss.requires_grad and loss.grad_fn is None}
    waiting = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    seen, softmaxes = set(waiting), []
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            leaves.add(node.variable)
        if node.name() == "LogSoftmaxBackward0" and (softmax := _softmax_above(node)) is not None:
            softmaxes.append(softmax)
        for above, _ in node.next_functions:
            if above is not None and above not in seen:
                seen.add(above)
                waiting.append(above)
    return leaves, softmaxes


def _softmax_above(node: Any) -> Any:
    """The softmax whose result reaches this node with nothing but a change of shape or format between."""
    above = node.next_functions[0][0]
    while above is not None and above.name().rstrip("0123456789").removesuffix("Backward") in _SHAPE_ONLY:
        above = above.next_functions[0][0]
    return above if above is not None and above.name() == "SoftmaxBackward0" else None
