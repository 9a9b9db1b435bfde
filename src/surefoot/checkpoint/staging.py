"""Staging: copies tensors to host memory, in buffers that the next save reuses."""

from collections.abc import Mapping

import torch
from torch.distributed.tensor import DTensor

from surefoot.trees import local_part


class Staging:
    """One copy of a state. It is valid until the next `copy`."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies every tensor to the host, and returns when all copies are complete."""
        self._buffers = {name: self._buffer(name, local_part(tensor)) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self._buffers[name].copy_(local_part(tensor), non_blocking=True)
        if any(not tensor.is_cpu for tensor in tensors.values()):
            torch.accelerator.synchronize()
        return {name: sharded_like(tensor, self._buffers[name]) for name, tensor in tensors.items()}

    def _buffer(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        kept = self._buffers.get(name)
        if kept is not None and (kept.shape, kept.dtype) == (tensor.shape, tensor.dtype):
            return kept
        return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)


def sharded_like(tensor: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The part of this rank, as a DTensor if the tensor is one."""
    if not isinstance(tensor, DTensor):
        return part
    mesh, placements = tensor.device_mesh, tensor.placements
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())
