"""The device that a step runs on: the accelerator of this machine, or the CPU."""

from __future__ import annotations

import torch

WITHOUT_FLOAT64 = {"mps"}
"""Kinds of devices that have no float64: "Cannot convert a MPS Tensor to float64 dtype"."""


def widest(device: torch.device | str) -> torch.dtype:
    """The widest floating-point type that a device computes in."""
    return torch.float32 if torch.device(device).type in WITHOUT_FLOAT64 else torch.float64


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in float64, or in float32 on a device that has no float64."""
    return tensor.to(widest(tensor.device))


def accelerator() -> torch.device | None:
    """The accelerator that can be used here. A torch that was built for CUDA names one even without a GPU."""
    return torch.accelerator.current_accelerator(check_available=True)
