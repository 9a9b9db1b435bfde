"""A CUDA memory snapshot, booked: what holds the memory of a GPU, what is free, and what cannot be told."""

from dataclasses import dataclass

from surefoot.records.explanation import Place
from surefoot.records.out_of_memory import Held, LiveTensor


@dataclass(frozen=True)
class SegmentUse:
    """A segment that the allocator took from the device, and how much of it is free."""

    device: int
    address: int
    total_bytes: int
    free_bytes: int
    largest_free_bytes: int
    """Its largest free block: a tensor that is larger does not fit into it."""
    blocks: int


@dataclass(frozen=True)
class Refused:
    """An allocation that failed, as the trace of a snapshot tells it."""

    asked_bytes: int
    device_free_bytes: int | None
    place: Place | None = None


@dataclass(frozen=True)
class Planned:
    """What a plan of the script says of an account: the bytes at the peak of a steady step."""

    account: str
    bytes: int


@dataclass(frozen=True)
class MemorySnapshot:
    """The bytes of a snapshot. All of `reserved_bytes` is in exactly one of the six that follow it."""

    file: str
    segments: int
    blocks: int
    reserved_bytes: int
    requested_bytes: int
    """What live tensors asked for."""
    rounding_bytes: int
    """What their blocks are larger than that."""
    awaiting_bytes: int
    """Freed, and still in use by another stream."""
    fragmented_bytes: int
    """Free, in segments that also hold live blocks: it cannot go back to the device."""
    cached_bytes: int
    """Free, in segments without a live block: `torch.cuda.empty_cache()` gives it back."""
    uncovered_bytes: int
    """In segments, and in none of their blocks."""
    held: tuple[Held, ...]
    """The requested bytes by account, module and phase."""
    largest: tuple[LiveTensor, ...]
    unattributed_bytes: int
    """Requested bytes of blocks whose stack says nothing."""
    unattributed_blocks: int
    without_stack_blocks: int
    """Live blocks without any frame."""
    emptiest: tuple[SegmentUse, ...] = ()
    """The segments with the most free bytes."""
    refused: Refused | None = None
    """The last allocation that failed."""
    notes: tuple[str, ...] = ()
    planned: tuple[Planned, ...] = ()
    """Of the script that it came from, if it was planned."""
    planned_reserved_bytes: int = 0
