"""A limit on the memory of a training: the operation that would exceed it raises `torch.OutOfMemoryError`.

On a CPU the counting allocator refuses (`allocator.py`), so the limit is on tensors, to the byte. On a CUDA GPU torch's
caching allocator refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from surefoot.errors import WorldError
from surefoot.meters import allocator
from surefoot.world import cuda


@contextmanager
def memory_limit(limit_bytes: int | None, device: torch.device) -> Iterator[None]:
    """Limits the memory of tensors that are made inside. None is no limit."""
    if limit_bytes is None:
        yield
        return
    if device.type == "cuda":
        with cuda.memory_limit(limit_bytes, device):
            yield
        return
    if not allocator.available():
        raise WorldError(
            "--memory-limit counts torch's allocations, and needs a C++ compiler once: install g++ or set CXX"
        )
    allocator.install()
    allocator.limit(limit_bytes)
    try:
        yield
    finally:
        allocator.limit(None)
        allocator.uninstall()


def device_here() -> torch.device:
    """The device of a script that says nothing of its own: the GPU if there is one."""
    return torch.device("cuda" if cuda.is_there() else "cpu")
