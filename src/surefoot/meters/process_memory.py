"""Measures the memory of this process, fast enough for every step."""

from __future__ import annotations

import os

import torch

from surefoot.hardware.host import page_bytes
from surefoot.world import cuda

STATM = "/proc/self/statm"
"""Linux only: sizes in pages. The second one is the resident memory."""
PAGE_BYTES = page_bytes()


def held_bytes(device: torch.device) -> int | None:
    """The bytes of live tensors on a GPU, or else the resident memory of the process. None if unknown."""
    if device.type == "cuda":
        return cuda.held_bytes(device)
    try:
        file = os.open(STATM, os.O_RDONLY)  # a third of the time of a file object
    except OSError:
        return None
    try:
        return int(os.read(file, 128).split()[1]) * PAGE_BYTES
    finally:
        os.close(file)
