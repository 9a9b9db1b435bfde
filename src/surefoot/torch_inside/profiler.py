"""Profiler: whether torch's profiler is on, and the allocations of one call by the legacy profiler.

The public profiler (`torch.profiler`) would do too. It starts Kineto, which takes a second and prints to the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def is_profiling() -> bool:
    """Is torch's profiler on?"""
    return torch.autograd._profiler_enabled()


def allocations(run: Callable[[], object]) -> Iterator[int]:
    """The bytes of each allocation that `run` makes on this thread, in order. Negative if it is freed."""
    from torch.autograd.profiler_legacy import profile

    torch.autograd._enable_profiler_legacy(profile(profile_memory=True).config())
    try:
        run()
    finally:
        threads: Any = torch.autograd._disable_profiler_legacy()
    for thread in threads:
        yield from (event.cpu_memory_usage() for event in thread if event.kind() == "memory_alloc")
