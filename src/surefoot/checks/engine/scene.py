"""The scene: what all observers of a loop share: its phases, its optimizers, how many updates it has made."""

from __future__ import annotations

from collections.abc import Iterator, MutableSet, Set
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import xxhash
from torch import nn
from torch.distributions import Distribution
from torch.optim import Optimizer

from surefoot.checks.engine.failsafe import Failsafe
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.events.autograd import aside
from surefoot.events.phases import Phases

if TYPE_CHECKING:
    from surefoot.checks.engine.bus import Bus

LOOKED_AT = 12
"""So many updates are looked at closely after an optimizer was made: tensors are read, and not only counted."""
MOST_LOOKED_AT = 48
"""More updates are not, however many optimizers are made."""
LARGEST = 1 << 24
"""Tensors with more elements than this are not read."""


class Scene:
    """The loop so far: its phases, its optimizers, how many updates it has made."""

    bus: Bus
    """Where an observer publishes what it alone has noticed."""

    def __init__(self, phases: Phases, optimizers: tuple[Optimizer, ...] = (), *, spares: bool = False) -> None:
        self.phases, self.spared = phases, Failsafe(on=spares)
        self.optimizers: list[Optimizer] = list(optimizers)
        self.stepped: dict[Optimizer, int] = {}
        self._left_out: dict[Optimizer, int] = {}
        """How many updates of an optimizer a scaler has left out."""
        self.updates = self.backwards = 0
        self.updating: Optimizer | None = None
        self.reached: MutableSet[torch.Tensor] = WeakTensorSet()
        self.penalized: Set[torch.Tensor] = WeakTensorSet()
        """Of those, parameters that nothing but a penalty on their own values reaches."""
        self.trained: set[torch.Tensor] = set()
        """Parameters that had requires_grad in an update of an optimizer that holds them."""
        self.ended = False
        self._close_until, self._looked_at = LOOKED_AT, 0
        self.training = 0
        """How many updates had been made when the training that goes on began, with an optimizer of its own."""
        self.tiny = False
        """Steps were cut to a few samples, so that the number of samples says nothing."""
        self.source = ""
        """The file of the script or recipe, to be read for what was done before the loop."""
        self.cut_from = 1.0
        """How many times as many samples a micro-batch would have had."""

    @property
    def close(self) -> bool:
        """Whether tensors are read now."""
        return self.updates < self._close_until and self._looked_at < MOST_LOOKED_AT

    def look_again(self) -> None:
        """A new optimizer is made: what follows may be another training, and is looked at as closely."""
        self.look_closely()
        self.training = self.updates

    def look_closely(self) -> None:
        """From now on tensors are read, for so many updates."""
        self._close_until = self.updates + LOOKED_AT

    def count(self, optimizer: Optimizer) -> None:
        """An optimizer has made an update."""
        self._looked_at += self.close
        self.updates += 1
        self.stepped[optimizer] = self.stepped.get(optimizer, 0) + 1

    def leave_out(self, optimizer: Optimizer) -> None:
        """A scaler has left out an update of an optimizer."""
        self._left_out[optimizer] = self._left_out.get(optimizer, 0) + 1

    @property
    def tries(self) -> int:
        """The updates that were made or left out."""
        return self.updates + sum(self._left_out.values())

    def tries_of(self, optimizer: Optimizer) -> int:
        """The updates that an optimizer has made, and those of it that a scaler has left out."""
        left_out = max((n for each, n in self._left_out.items() if is_same(each, optimizer)), default=0)
        return self.updates_of(optimizer) + left_out

    def optimized(self) -> set[torch.Tensor]:
        return {each for optimizer in self.optimizers for each in held(optimizer)}

    def updates_of(self, optimizer: Optimizer) -> int:
        """The updates an optimizer has made, itself or through one that it wraps or that wraps it."""
        return max((n for each, n in self.stepped.items() if is_same(each, optimizer)), default=0)

    def number_of(self, optimizer: Optimizer) -> int:
        """Its place among the optimizers, or that of one that it wraps or that wraps it; -1 if it has none."""
        return next((place for place, each in enumerate(self.optimizers) if is_same(each, optimizer)), -1)

    def names(self) -> dict[torch.Tensor, str]:
        """Every parameter of every model that ran, by its name."""
        return {
            each: prefix + name
            for model, prefix in self.phases.models.items()
            for name, each in model.named_parameters()
        }

    def name(self, model: nn.Module) -> str:
        """The name of a model: its class, with a number where another model has the same."""
        alike = [each for each in self.phases.models if type(each) is type(model)]
        place = alike.index(model) if model in alike else 0
        return type(model).__name__ + (f" {place + 1}" if place else "")


def is_same(one: Optimizer, other: Optimizer) -> bool:
    """Are they one optimizer, or does one wrap the other?"""
    wraps = getattr(one, "optimizer", None) is other or getattr(other, "optimizer", None) is one
    return one is other or wraps or one.param_groups is other.param_groups


def held(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def readable(tensor: Any) -> bool:
    """A plain tensor with values, not too large to look at."""
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and tensor.numel() <= LARGEST
    )


def digest(tensor: torch.Tensor) -> int:
    """A hash of a tensor's values. They are copied: a storage that numpy has seen can no longer be resized by FSDP."""
    with aside():
        values = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)
        return xxhash.xxh3_64_intdigest(values.numpy().data)


def fingerprint(tensor: torch.Tensor, most: int = 4096) -> int:
    """A hash of some of a tensor's values, spread over all of it."""
    with aside():
        flat = tensor.detach().reshape(-1)
        return digest(flat[:: max(1, flat.numel() // most)])


def own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that no meter sees and that keeps nothing of the loop's alive."""
    with aside():
        return tensor.detach().clone()


def several() -> bool:
    """Is there a process group with more than one rank in it, real or not?"""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def tensors(tree: object) -> Iterator[torch.Tensor]:
    """The tensors in nested containers and in what models return: mappings, sequences, data classes, distributions."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)
    elif isinstance(tree, list | tuple | set):
        for item in tree:
            yield from tensors(item)
    elif hasattr(tree, "__dataclass_fields__"):
        for name in tree.__dataclass_fields__:
            yield from tensors(getattr(tree, name, None))
    elif isinstance(tree, Distribution):
        for item in vars(tree).values():
            yield from tensors(item)
    elif hasattr(tree, "__dict__") and not isinstance(tree, nn.Module | Optimizer | type):
        yield from (item for item in vars(tree).values() if isinstance(item, torch.Tensor))
