"""The scene: what all observers of a loop share: its phases, its optimizers, how many updates it has made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet, Sequence, Set
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
import xxhash
from torch import nn
from torch.distributions import Distribution
from torch.optim import Optimizer

from surefoot.checks.engine.host_copies import HOST
from surefoot.checks.engine.weak_set import WeakTensorSet
from surefoot.events.failsafe import Failsafe
from surefoot.events.phases import Phases
from surefoot.torch_inside.modes import aside
from surefoot.world.free_memory import free_bytes

LOOKED_AT = 12
"""After an optimizer is created, observers read tensors during this many updates. Later they only count."""
MOST_LOOKED_AT = 48
"""The total number of updates during which tensors are read, however many optimizers are created."""
ROOM = 4
"""A look may take memory of a device if it would fit this many times."""
LARGEST = 1 << 24
"""Tensors with more elements than this are not read."""


class Publisher(Protocol):
    """What the scene knows of the bus: how observers publish events that only they notice."""

    resting: bool

    def tell(self, event: str, *args: object) -> None: ...

    def gradient_asked(self, losses: Any, *, asked: bool = False) -> None: ...

    def update_left_out(self, optimizer: Optimizer) -> None: ...


class Scene:
    """The loop so far: its phases, its optimizers, how many updates it has made."""

    bus: Publisher

    def __init__(self, phases: Phases, optimizers: tuple[Optimizer, ...] = (), *, failsafe: bool = False) -> None:
        self.phases, self.failsafe = phases, Failsafe(on=failsafe)
        self.optimizers: list[Optimizer] = list(optimizers)
        self.stepped: dict[Optimizer, int] = {}
        self._left_out: dict[Optimizer, int] = {}
        """How many updates of each optimizer a gradient scaler skipped."""
        self.updates = self.backwards = 0
        self.updating: Optimizer | None = None
        self.reached: MutableSet[torch.Tensor] = WeakTensorSet()
        self.penalized: Set[torch.Tensor] = WeakTensorSet()
        """Those of `reached` that only a penalty on their own values reaches."""
        self.trained: set[torch.Tensor] = set()
        """Parameters that had requires_grad in an update of an optimizer that holds them."""
        self.ended = False
        self._close_until, self._looked_at = LOOKED_AT, 0
        self.training = 0
        """The number of updates made before the current training began, that is, before its optimizer was created."""
        self.tiny = False
        """Steps were cut to a few samples, so the number of samples means nothing."""
        self.source = ""
        """The file of the script or recipe. Checks read it to learn what happened before the loop."""
        self.numbered_apart = False
        """Gradients on a device have a graph: a thread of its own made their nodes, and numbers them from 0."""
        self.left_out: dict[str, None] = {}
        """The looks for which a device had too little memory, in order."""
        self.cut_from = 1.0
        """How many times larger a micro-batch was before it was cut."""
        self.preparing = float("inf")
        """The most seconds that checks take before a model is called. Data that is made after that is made unseen."""
        self.differentiated = False
        """The script called `torch.autograd.grad`: a training by hand, which may call no model."""
        self.hurried = False
        """Checks have taken what they may: how loaders make batches is not looked at any more."""
        self.rested_after: int | None = None
        """The number of updates that were watched closely, if later ones were not."""

    @property
    def close(self) -> bool:
        """Whether tensors are read now."""
        return self.updates < self._close_until and self._looked_at < MOST_LOOKED_AT

    def look_again(self) -> None:
        """A new optimizer was created. What follows may be another training, so tensors are read again."""
        self.look_closely()
        self.training = self.updates

    def look_closely(self) -> None:
        """Starts reading tensors again, for `LOOKED_AT` updates."""
        self._close_until = self.updates + LOOKED_AT

    def look_away(self) -> None:
        """Stops reading tensors, until a new optimizer or an evaluation asks for it again."""
        self._close_until = self.updates

    def has_room(self, look: str, extra: Iterable[torch.Tensor], still: Iterable[torch.Tensor] = ()) -> bool:
        """Does the device of these tensors clearly have room for copies of them? If not, notes that a look is left out.

        `still` are tensors as large as what the loop itself is about to allocate.
        """
        wanted: dict[torch.device, int] = {}
        for times, some in ((ROOM, extra), (1, still)):
            for each in some:
                wanted[each.device] = wanted.get(each.device, 0) + times * each.numel() * each.element_size()
        known = ((free_bytes(device), amount) for device, amount in wanted.items())
        fits = all(free is None or amount <= free for free, amount in known)
        if not fits:
            self.left_out[look] = None
        return fits

    def count(self, optimizer: Optimizer) -> None:
        """An optimizer has made an update."""
        self._looked_at += self.close
        self.updates += 1
        self.stepped[optimizer] = self.stepped.get(optimizer, 0) + 1

    def leave_out(self, optimizer: Optimizer) -> None:
        """A gradient scaler skipped an update of this optimizer."""
        self._left_out[optimizer] = self._left_out.get(optimizer, 0) + 1

    @property
    def tries(self) -> int:
        """The number of updates, including those that a scaler skipped."""
        return self.updates + sum(self._left_out.values())

    def tries_of(self, optimizer: Optimizer) -> int:
        """The number of updates of this optimizer, including those that a scaler skipped."""
        left_out = max((n for each, n in self._left_out.items() if is_same(each, optimizer)), default=0)
        return self.updates_of(optimizer) + left_out

    def optimized(self) -> set[torch.Tensor]:
        return {each for optimizer in self.optimizers for each in held(optimizer)}

    def updates_of(self, optimizer: Optimizer) -> int:
        """The number of updates of this optimizer, or of one that wraps it or is wrapped by it."""
        return max((n for each, n in self.stepped.items() if is_same(each, optimizer)), default=0)

    def number_of(self, optimizer: Optimizer) -> int:
        """The index of this optimizer, or of one that wraps it or is wrapped by it; -1 if unknown."""
        return next((place for place, each in enumerate(self.optimizers) if is_same(each, optimizer)), -1)

    def names(self) -> dict[torch.Tensor, str]:
        """The name of every parameter of every model that ran."""
        return {
            each: prefix + name
            for model, prefix in self.phases.models.items()
            for name, each in model.named_parameters()
        }

    def name(self, model: nn.Module) -> str:
        """The class name of a model. A number is added if an earlier model has the same class."""
        alike = [each for each in self.phases.models if type(each) is type(model)]
        place = alike.index(model) if model in alike else 0
        return type(model).__name__ + (f" {place + 1}" if place else "")


def is_same(one: Optimizer, other: Optimizer) -> bool:
    """Are these the same optimizer, or does one wrap the other?"""
    wraps = getattr(one, "optimizer", None) is other or getattr(other, "optimizer", None) is one
    return one is other or wraps or one.param_groups is other.param_groups


def held(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def readable(tensor: Any) -> bool:
    """Is this a plain tensor with values, and small enough to read?"""
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and 0 < tensor.numel() <= LARGEST
    )


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array. Number formats that numpy lacks become float32."""
    plain = HOST.of(tensor)
    known = not plain.is_floating_point() or plain.dtype in (torch.float16, torch.float32, torch.float64)
    return (plain if known else plain.float()).numpy()


def digest(tensor: torch.Tensor) -> int:
    """A hash of a tensor's values. It hashes a copy: FSDP cannot resize a storage that numpy has seen."""
    with aside():
        return _hashed(HOST.of(tensor))


def digests_now(given: Sequence[torch.Tensor]) -> list[int]:
    """Their hashes, also if something wrote to them that autograd did not see."""
    with aside():
        return [_hashed(each) for each in HOST.fresh(given)]


def _hashed(tensor: torch.Tensor) -> int:
    values = tensor.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return xxhash.xxh3_64_intdigest(values.numpy().data)


def fingerprint(tensor: torch.Tensor, most: int = 4096) -> int:
    """A hash of a sample of a tensor's values, spread over the whole tensor."""
    return fingerprints((tensor,), most)[0]


def fingerprints(given: Iterable[torch.Tensor], most: int = 4096) -> list[int]:
    """The fingerprints of tensors. The host waits for a device once for all of them, not for each."""
    with aside():
        return digests_now([sampled(each, most) for each in given])


def sampled(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """About this many values of a tensor, spread over the whole tensor. Call it `aside`."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // most)]


def own(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy on the host, made without being observed. It keeps nothing of the loop alive."""
    with aside():
        return tensor.detach().clone() if tensor.is_cpu or not readable(tensor) else HOST.of(tensor).detach()


def several() -> bool:
    """Is there a process group, real or fake, with more than one rank?"""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size}


def tensors(tree: object) -> Iterator[torch.Tensor]:
    """Yields the tensors in nested containers, data classes, distributions and other objects that models return."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _among(tree.values())
    elif isinstance(tree, list | tuple | set):
        yield from _among(tree)
    elif type(tree) in _PLAIN:
        return
    elif hasattr(tree, "__dataclass_fields__"):
        yield from _among(getattr(tree, name, None) for name in tree.__dataclass_fields__)
    elif isinstance(tree, Distribution):
        yield from _among(vars(tree).values())
    elif hasattr(tree, "__dict__") and not isinstance(tree, nn.Module | Optimizer | type):
        yield from (item for item in vars(tree).values() if isinstance(item, torch.Tensor))


def _among(items: Iterable[object]) -> Iterator[torch.Tensor]:
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif type(item) not in _PLAIN:
            yield from tensors(item)
