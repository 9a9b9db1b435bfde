"""Memory history: the stacks of CUDA's allocations and the snapshot that torch writes of them.

"Understanding CUDA Memory Usage" (torch_cuda_memory.html in torch's documentation) explains both functions. They are
documented there, and still have private names.
"""

from __future__ import annotations

import torch


def record(entries: int) -> None:
    """Records the Python stacks of the newest allocations."""
    torch.cuda.memory._record_memory_history(max_entries=entries, stacks="python")


def stop_recording() -> None:
    """Forgets the stacks, and records no more."""
    torch.cuda.memory._record_memory_history(enabled=None)


def dump(file: str) -> None:
    """Writes the allocator's segments and blocks to a file, as a pickle of plain data."""
    torch.cuda.memory._dump_snapshot(file)
