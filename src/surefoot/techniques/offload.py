"""Offload: tensors wait in the memory of the host while the device does not need them.

| `offload`     | what waits in host memory                                                       |
|---------------|---------------------------------------------------------------------------------|
| `none`        | nothing                                                                         |
| `activations` | what autograd keeps of a forward for its backward, without parameters and batch |

Each storage is copied once, whole, however many of its views autograd keeps, and its views are made again with the same
strides and offsets: kernels get the operands that they would get without offload, so an update keeps its bits. Memory
of less than `LEAST_BYTES` stays: moving it takes longer than it saves. So do the casts that autocast makes of trained
parameters, which it holds until the forward ends anyway.

Transfers go through the stream of the computation, in its order. Nothing waits for the host, and nothing is computed
meanwhile.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.fsdp import FSDPModule

from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe, budget_of
from surefoot.torch_inside.storages import base_of, identity_of, version_of
from surefoot.trees import plain, tensors_in
from surefoot.world.host_memory import to_host
from surefoot.world.world import World

LEAST_BYTES = 1024
"""Smaller storages stay on the device, as in torchtune's `OffloadActivations`."""


class Waiting:
    """A storage that waits in host memory. Its copy on the device lives from its first use in backward to its last."""

    def __init__(self, host: torch.Tensor) -> None:
        self.host, self.uses = host, 0
        self._back: torch.Tensor | None = None

    def on_device(self, world: World) -> torch.Tensor:
        """All its elements on the device, for one of its uses."""
        back = world.from_host(self.host) if self._back is None else self._back
        self.uses -= 1
        self._back = back if self.uses > 0 else None
        return back


class View:
    """A tensor that autograd keeps, as a view of a storage that waits."""

    def __init__(self, waiting: Waiting, tensor: torch.Tensor) -> None:
        self.waiting, self.place = waiting, (tensor.shape, tensor.stride(), tensor.storage_offset())
        waiting.uses += 1

    def on_device(self, world: World) -> torch.Tensor:
        return self.waiting.on_device(world).as_strided(*self.place)


class Activations:
    """Sends what autograd keeps of a forward to the host, and brings it back for its backward."""

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model, self.world = model, world
        self._stay: set[int] = set()
        self._copies: dict[tuple[int, int, torch.dtype], tuple[Any, Any]] = {}
        """Of each storage, as it was at a version: itself and what waits for it, if both still live."""
        for module in model.modules():
            if isinstance(module, FSDPModule):  # its whole parameters are there from its own hook on, which runs first
                module.register_forward_pre_hook(self._gathered)

    @contextmanager
    def around(self, batch: Any) -> Iterator[None]:
        """A context for one forward and its loss."""
        self._stay = set(_identities([*self.model.parameters(), *self.model.buffers(), *tensors_in([batch])]))
        try:
            with saved_tensors_hooks(self._pack, self._unpack):
                yield
        finally:
            self._copies.clear()

    def explain(self) -> list[str]:
        """What waits in host memory, and what does not."""
        return [
            "offload=activations: what backward needs waits in host memory, without parameters, the batch and memory "
            f"of less than {LEAST_BYTES:,} bytes; nothing is computed during a transfer"
        ]

    def _gathered(self, module: Any, args: Any) -> None:
        self._stay.update(_identities(module.parameters()))

    def _pack(self, tensor: torch.Tensor) -> Any:
        if self._stays(tensor):
            return tensor.detach()  # a result itself would hold the node that keeps it, which would never be freed
        storage = tensor.untyped_storage()
        key = identity_of(storage), version_of(tensor), tensor.dtype
        of, kept = self._copies.get(key, (None, None))
        waiting = kept() if of is not None and of() is not None else None
        if waiting is None:
            waiting = Waiting(to_host(_whole(tensor, storage)))
            self._copies[key] = weakref.ref(storage), weakref.ref(waiting)
        return View(waiting, tensor)

    def _unpack(self, kept: Any) -> torch.Tensor:
        return kept.on_device(self.world) if isinstance(kept, View) else kept

    def _stays(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided or hasattr(tensor, "__tensor_flatten__"):
            return True
        if tensor.device.type != self.world.device.type:
            return True
        storage = tensor.untyped_storage()
        return storage.nbytes() < LEAST_BYTES or identity_of(storage) in self._stay or _is_cast(tensor)


def apply(model: nn.Module, recipe: Recipe, world: World) -> Activations | None:
    """Prepares a model whose blocks are sharded already, if the recipe offloads. It changes nothing of the model."""
    if recipe.offload == "none":
        return None
    if recipe.tp > 1:
        raise RecipeError(
            "offload=activations does not work with tp, whose activations are parts of tensors; use dp_shard"
        )
    if budget_of(recipe.recompute) is not None:
        raise RecipeError(
            f"offload=activations does not work with recompute={recipe.recompute!r}: a budget counts what stays on the "
            "device; use none, full or selective"
        )
    return Activations(model, world)


def _identities(tensors: Any) -> Iterator[int]:
    for tensor in tensors:
        for part in plain(tensor):
            if part.layout is torch.strided:
                yield identity_of(part.untyped_storage())


def _whole(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """All elements of a tensor's storage."""
    return tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)


def _is_cast(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a trained parameter in another number format, or a view of it."""
    node = base_of(tensor).grad_fn
    if node is None or node.name() != "ToCopyBackward0":
        return False
    return all(of is not None and of.name().endswith("AccumulateGrad") for of, _ in node.next_functions)
