"""Clip: limits the total norm of the gradients, after they are unscaled and divided by the count."""

import math
from collections.abc import Iterable
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from surefoot.world.device import wide


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """The gradients' total norm over all ranks. If it exceeds the maximum, they are scaled down in place."""
    parameters = [each for each in parameters if each.grad is not None]
    norm = total_norm([each.grad for each in parameters if each.grad is not None])
    if max_norm is not None:
        for alike in _by_mesh(parameters):
            torch.nn.utils.clip_grads_with_norm_(alike, max_norm, norm)
    return norm


def _by_mesh(parameters: list[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    """Groups parameters by mesh: a scalar tensor can multiply the shards of only one mesh at a time."""
    found: dict[DeviceMesh | None, list[torch.nn.Parameter]] = {}
    for each in parameters:
        found.setdefault(each.device_mesh if isinstance(each, DTensor) else None, []).append(each)
    return found.values()


def total_norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The norm of all gradients, sharded in any way, with a single all-reduce of one number.

    torch's own function reduces along each dimension of a mesh, and cannot combine gradients of several meshes.
    """
    if not any(isinstance(each, DTensor) for each in gradients):
        return torch.nn.utils.get_total_norm([_values(each) if each.is_sparse else each for each in gradients])
    held: dict[float, list[torch.Tensor]] = {}
    for each in cast(list[DTensor], gradients):  # all are, or none
        held.setdefault(share_held(each), []).append(each.to_local())
    squares = [share * wide(torch.nn.utils.get_total_norm(parts)) ** 2 for share, parts in held.items()]
    square = torch.stack(squares).sum()
    dist.all_reduce(square)
    return square.sqrt().float()


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """The values of a sparse gradient. Its rows are merged first: a row may occur several times."""
    return gradient.coalesce().values()


def share_held(tensor: DTensor) -> float:
    """The weight of this rank's piece: 1 over the number of ranks that hold the same piece."""
    cut = [not placement.is_replicate() for placement in tensor.placements]
    pieces = math.prod(size for size, is_cut in zip(tensor.device_mesh.shape, cut, strict=True) if is_cut)
    return pieces / dist.get_world_size()


def norm_after(norm: float, max_norm: float | None) -> float:
    """The norm that `clip` leaves behind, by torch's own formula."""
    return norm if max_norm is None else norm * min(1.0, max_norm / (norm + 1e-6))
