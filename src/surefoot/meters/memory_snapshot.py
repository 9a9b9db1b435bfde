"""Memory snapshot: allocations in the format of `torch.cuda.memory._snapshot()`, for https://pytorch.org/memory_viz.

The format is documented there, in `torch.cuda.memory._snapshot`. The viewer reads pickles of protocol 2 to 4. Ours hold
dicts, lists, integers and texts only, so that loading one runs no code. Addresses and segments are those of a model of
torch's caching allocator. Sizes are the requested bytes, so that live bytes add up to those of the plan.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from surefoot.costs.caching_allocator import Block, CachingAllocator
from surefoot.meters.memory_book import Booking, Chapter
from surefoot.plain_files import write_whole

PROTOCOL = 4
FIRST_ADDRESS = 0x7F00_0000_0000
"""Looks like CUDA's own, and a 64-bit float can hold it, which is what the viewer has."""
POOL = [0, 0]
"""The default memory pool."""


def write_snapshot(file: Path, chapters: Sequence[tuple[str, Chapter]]) -> None:
    """Writes the chapters of a memory book, one after the other, to a file."""
    write_whole(file, pickle.dumps(snapshot_of(chapters), protocol=PROTOCOL))


def snapshot_of(chapters: Sequence[tuple[str, Chapter]]) -> dict[str, Any]:
    """The snapshot after the last of some consecutive chapters, with a trace of all their events."""
    made = _Snapshot()
    for title, booking in _allocations(chapters):
        if booking in made.blocks:
            made.free(booking)
        else:
            made.allocate(booking, title)
    made.trace.append(_LAST)
    return {"segments": made.segments(), "device_traces": [made.trace]}


_LAST = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": [], "pool_id": POOL, "category": "unknown"}
"""torch ends a trace like this. The viewer fails on a trace with categories unless one of them is `unknown`."""


def _allocations(chapters: Sequence[tuple[str, Chapter]]) -> Iterator[tuple[str, Booking]]:
    """Every storage twice: where it is made and where it is freed. Storages that take no memory are left out.

    Those that are freed between two allocations come in the order of their making, as a memory book tells them.
    """
    freed: list[Booking] = []
    live = set(chapters[0][1].carried)
    yield from ((chapters[0][0], booking) for booking in chapters[0][1].carried if booking.size)
    for title, chapter in chapters:
        for booking, _, _ in chapter.events:
            if booking is None or not booking.size:
                continue
            if booking in live:
                live.remove(booking)
                freed.append(booking)
                continue
            live.add(booking)
            yield from _in_order(title, freed)
            yield title, booking
        yield from _in_order(title, freed)


def _in_order(title: str, freed: list[Booking]) -> Iterator[tuple[str, Booking]]:
    yield from ((title, booking) for booking in sorted(freed, key=lambda booking: booking.number))
    freed.clear()


class _Snapshot:
    """Follows allocations with a model of torch's allocator, and writes the trace."""

    def __init__(self) -> None:
        self.trace: list[dict[str, Any]] = []
        self.blocks: dict[Booking, tuple[Block, list[dict[str, Any]]]] = {}
        self._allocator = CachingAllocator()
        self._segments: list[dict[str, Any]] = []

    def allocate(self, booking: Booking, title: str) -> None:
        before = self._allocator.reserved_bytes
        block, frames = self._allocator.allocate(booking.size, stream=booking.stream), _frames(booking, title)
        self.blocks[booking] = block, frames
        grown = self._allocator.reserved_bytes - before
        if grown:
            self._reserve(block, booking, grown, frames)
        event = self._event("alloc", block, booking.size, booking, frames)
        self.trace.append({**event, "category": booking.account})

    def free(self, booking: Booking) -> None:
        block, frames = self.blocks.pop(booking)
        for action in ("free_requested", "free_completed"):
            self.trace.append(self._event(action, block, booking.size, booking, frames))
        self._allocator.release(block)

    def _reserve(self, block: Block, booking: Booking, size: int, frames: list[dict[str, Any]]) -> None:
        self.trace.append(self._event("segment_alloc", block, size, booking, frames))
        self._segments.append(
            {
                "device": 0,
                "address": _address(block),
                "total_size": size,
                "stream": booking.stream,
                "segment_type": "small" if block.pool.small else "large",
                "segment_pool_id": POOL,
                "is_expandable": False,
                "frames": frames,
            }
        )

    @staticmethod
    def _event(action: str, block: Block, size: int, booking: Booking, frames: list[dict[str, Any]]) -> dict[str, Any]:
        place = {"addr": _address(block), "size": size, "stream": booking.stream}
        return {"action": action, **place, "frames": frames, "pool_id": POOL}

    def segments(self) -> list[dict[str, Any]]:
        """The segments and their blocks as they are now."""
        held = [(_address(block), block.size, each.size, frames) for each, (block, frames) in self.blocks.items()]
        held.sort(key=_first)
        return [_filled(segment, held) for segment in self._segments]


_Held = tuple[int, int, int, list[dict[str, Any]]]
"""A block in use: its address, its size, the bytes that were requested, and its frames."""


def _first(held: _Held) -> int:
    return held[0]


def _filled(segment: dict[str, Any], held: list[_Held]) -> dict[str, Any]:
    """A segment with its blocks, in use and free, in the order of their addresses."""
    blocks: list[dict[str, Any]] = []
    at, end = segment["address"], segment["address"] + segment["total_size"]
    inside = slice(bisect_left(held, at, key=_first), bisect_left(held, end, key=_first))
    for address, size, requested, frames in held[inside]:
        blocks += _unused(at, address)
        blocks.append(
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": "active_allocated",
                "frames": frames,
            }
        )
        at = address + size
    blocks += _unused(at, end)
    used = [block for block in blocks if block["state"] == "active_allocated"]
    sizes = {name: sum(block["size"] for block in used) for name in ("allocated_size", "active_size")}
    return {**segment, **sizes, "requested_size": sum(block["requested_size"] for block in used), "blocks": blocks}


def _unused(address: int, end: int) -> list[dict[str, Any]]:
    if address == end:
        return []
    return [{"address": address, "size": end - address, "requested_size": 0, "state": "inactive", "frames": []}]


def _address(block: Block) -> int:
    return FIRST_ADDRESS + block.address


def _frames(booking: Booking, title: str) -> list[dict[str, Any]]:
    """What a storage is for, where a viewer expects a stack of calls: innermost first."""
    made = " ".join(filter(None, (booking.operator, booking.tensor)))
    phase = title if booking.born.name == "init" else f"{booking.born.name}, {title}"
    named = {"operator": made, "module": booking.module, "phase": phase, "account": booking.account}
    return [{"filename": kind, "line": 0, "name": name} for kind, name in named.items() if name]
