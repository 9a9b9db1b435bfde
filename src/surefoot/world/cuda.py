"""CUDA: every call to torch.cuda that surefoot's measurements make, each with the documentation that it follows.

No GPU was at hand when this was written. So every function does one documented thing, and none guesses. Pages are those
of https://docs.pytorch.org/docs/2.13/, without `generated/torch.cuda.` and `.html`. `tests/test_cuda.py` holds the
functions against made-up statistics with the documented keys.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.torch_inside import memory_history


def is_there() -> bool:
    """Whether torch can use a CUDA GPU. `is_available`: "if CUDA is currently available"."""
    return torch.cuda.is_available()


def has_started() -> bool:
    """Whether this process has used CUDA. `is_initialized`: "whether PyTorch's CUDA state has been initialized"."""
    return torch.cuda.is_initialized()


def device_name(device: torch.device | None = None) -> str:
    """The driver's name of a GPU. `get_device_name`: "Get the name of a device"."""
    return torch.cuda.get_device_name(device)


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU. `get_device_capability`: "the major and minor cuda capability of the device"."""
    return torch.cuda.get_device_capability(device)


@dataclass(frozen=True)
class Properties:
    """The GPUs of this machine: how many, and what the first one is."""

    count: int
    name: str
    memory_bytes: int
    capability: str
    bf16: bool


def properties() -> Properties:
    """`get_device_properties` has the fields name, total_memory, major and minor; `device_count` counts GPUs.

    `is_bf16_supported(including_emulation=False)` says whether the hardware has bf16.
    """
    first = torch.cuda.get_device_properties(0)
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return Properties(
        torch.cuda.device_count(), first.name, first.total_memory, f"{first.major}.{first.minor}", has_bf16
    )


def synchronize() -> None:
    """Waits for the device. `synchronize`: "Wait for all kernels in all streams on a CUDA device to complete".

    Other accelerators have the same function in `torch.accelerator`. Without one, there is nothing to wait for.
    """
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


# ------------------------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True)
class Peaks:
    """The most bytes since the last `reset_peaks`, as the caching allocator counts them.

    `requested` is what tensors asked for. `allocated` is the same in whole blocks, `max_memory_allocated`. `reserved`
    is what the allocator took from the device, `max_memory_reserved`. `retries` counts how often it had to give memory
    back because the device was full.
    """

    requested: int
    allocated: int
    reserved: int
    retries: int


def peaks_of(statistics: Mapping[str, Any]) -> Peaks:
    """`memory_stats`: keys are `NAME.{all,large_pool,small_pool}.{current,peak,allocated,freed}`.

    `requested_bytes` is "memory requested by client code", `allocated_bytes` the "amount of allocated memory",
    `reserved_bytes` the "amount of reserved memory", `num_alloc_retries` the "number of failed cudaMalloc calls that
    result in a cache flush and retry". The dictionary is empty before CUDA is used: all are 0 then.
    """
    names = ("requested_bytes.all.peak", "allocated_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries")
    return Peaks(*(int(statistics.get(name, 0)) for name in names))


def peaks() -> Peaks:
    """The peaks of the current device. `memory_stats`: "for the current device [...] if device is None"."""
    return peaks_of(torch.cuda.memory_stats())


def reset_peaks() -> None:
    """Counts peaks from now on. `reset_peak_memory_stats`: peaks "correspond to the 'peak' key in each stat dict".

    A peak begins at what is live now, so reserved memory that is kept counts again.
    """
    torch.cuda.reset_peak_memory_stats()


def held_bytes(device: torch.device) -> int:
    """The bytes of live tensors. `memory_allocated`: "the current GPU memory occupied by tensors in bytes"."""
    return torch.cuda.memory_allocated(device)


def used_and_total_bytes() -> tuple[int, int]:
    """`mem_get_info`: "the global free and total GPU memory for a given device using cudaMemGetInfo".

    Global: what other processes use on this device is in it, and so is this process's CUDA context.
    """
    free, total = torch.cuda.mem_get_info()
    return total - free, total


def has_expandable_segments() -> bool:
    """Whether the allocator uses expandable segments, as `PYTORCH_ALLOC_CONF=expandable_segments:True` sets.

    `memory_snapshot` returns the allocator's segments. Each says in `is_expandable` which kind it is.
    """
    return any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())


@contextmanager
def memory_limit(limit_bytes: int, device: torch.device) -> Iterator[None]:
    """`set_per_process_memory_fraction`: "The allowed value equals the total visible memory multiplied fraction. If
    trying to allocate more than the allowed value in a process, will raise an out of memory error in allocator."

    Stacks of allocations are recorded too, for `dump_snapshot`: `torch.cuda.memory._record_memory_history`, which
    "Understanding CUDA Memory Usage" explains (torch_cuda_memory.html).
    """
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    memory_history.record(_ENTRIES)
    try:
        yield
    finally:
        memory_history.stop_recording()
        torch.cuda.set_per_process_memory_fraction(1.0, device)


_ENTRIES = 100_000
"""As in torch's own example."""


def dump_snapshot(file: str) -> None:
    """Writes the allocator's segments and blocks. `_dump_snapshot`: "Save a pickled version of the
    `torch.memory._snapshot()` dictionary to a file"."""
    memory_history.dump(file)


# --------------------------------------------------------------------------------------------------------------- time


def mark() -> Any:
    """A mark in the current stream. `Event(enable_timing=True).record()`: "Record the event in a given stream"."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(first: Any, last: Any) -> float:
    """Seconds of the device between two marks.

    `Event.synchronize`: "Wait for the event to complete". `Event.elapsed_time`: "in milliseconds after the event was
    recorded and before the end_event was recorded".
    """
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


@contextmanager
def counting_waits() -> Iterator[list[str]]:
    """The warnings of torch about operations for which the host waits, one for each.

    `set_sync_debug_mode`: "Set the debug mode for cuda synchronizing operations", `"warn"` to warn on them. "This is an
    experimental feature, and not all synchronizing operations will trigger warning or error."
    """
    before, found = torch.cuda.get_sync_debug_mode(), list[str]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
            found += [str(each.message) for each in seen if "synchroniz" in str(each.message)]
