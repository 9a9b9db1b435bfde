"""Host memory: tensors of a device that wait in the memory of its host, and transfers between the two.

Meters ask `transfer()` during each operator. On a CPU the two memories are one: copies to the host are made all the
same, so that a run there takes the steps of a run on a GPU, and nothing is copied back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Transfer = Literal["to_host", "to_device"]

_now = threading.local()


def transfer() -> Transfer | None:
    """The transfer that this thread is making. None if it makes none."""
    return getattr(_now, "transfer", None)


@contextmanager
def transferring(way: Transfer) -> Iterator[None]:
    """A context in which new tensors are the results of a transfer."""
    _now.transfer = way
    try:
        yield
    finally:
        _now.transfer = None


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor in host memory: pinned if it comes from an accelerator, which then does not wait for it."""
    away = tensor.device.type != "cpu"
    with transferring("to_host"):
        made = torch.empty_like(tensor, device="cpu", pin_memory=away)
        return made.copy_(tensor, non_blocking=away)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host on a device; itself, if the device is a CPU."""
    if device.type == "cpu":
        return tensor
    with transferring("to_device"):
        return tensor.to(device, non_blocking=True)


def to_planned_device(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a fake tensor of the host on a GPU that fake CPU tensors stand for."""
    with transferring("to_device"):
        return torch.empty_like(tensor).copy_(tensor)
