"""Buffers: after every step, rank 0's buffers, for example running statistics, are copied to all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def saved_buffers(model: nn.Module) -> list[str]:
    """The names of the buffers in the model's state_dict. The others are computed, alike on all ranks."""
    saved = model.state_dict()
    return [name for name, _ in model.named_buffers() if name in saved]


def agree(model: nn.Module, names: list[str]) -> None:
    """Copies rank 0's buffers to every rank, with one message for each dtype."""
    formats: dict[torch.dtype, list[torch.Tensor]] = {}
    for buffer in map(model.get_buffer, names):
        formats.setdefault(buffer.dtype, []).append(buffer)
    for buffers in formats.values():
        together = torch.cat([each.detach().flatten() for each in buffers])
        dist.broadcast(together, src=0)
        parts = together.split([each.numel() for each in buffers])
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.detach().copy_(part.view_as(buffer))
