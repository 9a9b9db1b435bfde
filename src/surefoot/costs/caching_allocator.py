"""A model of torch's CUDA caching allocator: the bytes it reserves for a sequence of allocations.

Constants and rules are those of torch 2.13's `c10/cuda/CUDACachingAllocator.cpp`. Requests are rounded to 512 bytes.
Small ones (up to 1 MiB) and large ones have separate pools in each stream. The best fitting free block is taken, and
split if enough remains. Freed blocks merge with their free neighbours. A reserved segment is kept. With expandable
segments, each pool is one range that grows page by page.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol


class Sized(Hashable, Protocol):
    """Anything with a size in bytes and a stream that allocates it."""

    size: int
    stream: int


ROUNDING = 512
SMALL_REQUEST = 1 << 20
SMALL_SEGMENT = 2 << 20
MIDDLE_REQUEST = 10 << 20
MIDDLE_SEGMENT = 20 << 20
LARGE_ROUNDING = 2 << 20
RANGE = 1 << 48
"""The distance between the ranges of expandable pools: no GPU has as much memory."""


@dataclass(eq=False)
class Block:
    """A piece of a segment, free or in use, with its neighbours."""

    size: int
    pool: Pool
    address: int
    free: bool = True
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False)
class Pool:
    """The free blocks of one stream and size class, in order of size and age."""

    small: bool
    start: int = 0
    """Where its range begins, if segments are expandable."""
    free: list[tuple[int, int, Block]] = field(default_factory=list)
    last: Block | None = None
    _numbers: dict[Block, int] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        self._numbers.setdefault(block, len(self._numbers))
        insort(self.free, (block.size, self._numbers[block], block))  # no two have the same number

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, (block.size, self._numbers[block]))]

    def best_fit(self, size: int) -> Block | None:
        at = bisect_left(self.free, (size, -1))
        return self.free[at][2] if at < len(self.free) else None


class CachingAllocator:
    """Counts the bytes of a GPU's allocator. Like torch before memory runs out, it never releases a segment."""

    def __init__(self, *, expandable_segments: bool = False) -> None:
        self.expandable_segments = expandable_segments
        self.allocated_bytes = self.reserved_bytes = self.peak_allocated_bytes = 0
        self._pools: dict[tuple[int, bool], Pool] = {}

    def allocate(self, size: int, *, stream: int = 0) -> Block:
        """Takes a block of at least `size` bytes. `reserved_bytes` grows if no free block fits."""
        size = max(ROUNDING, _rounded(size, ROUNDING))
        small = size <= SMALL_REQUEST
        pool = self._pools.setdefault((stream, small), Pool(small, start=len(self._pools) * RANGE))
        block = pool.best_fit(size)
        if block is None:
            block = self._grown(pool, size) if self.expandable_segments else self._segment(pool, size)
        pool.remove(block)
        self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def release(self, block: Block) -> None:
        """Returns a block to its pool, merged with its free neighbours."""
        self.allocated_bytes -= block.size
        block.free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                block.pool.remove(neighbour)
                _merge(block, neighbour)
        block.pool.add(block)

    def _segment(self, pool: Pool, size: int) -> Block:
        """Reserves a new segment."""
        block = Block(_segment_size(size), pool, address=self.reserved_bytes)
        self.reserved_bytes += block.size
        pool.add(block)
        return block

    def _grown(self, pool: Pool, size: int) -> Block:
        """Grows the end of the pool's range by whole pages until the request fits."""
        page = SMALL_SEGMENT if pool.small else MIDDLE_SEGMENT
        end = pool.last
        there = end.size if end is not None and end.free else 0
        grown = _rounded(size - there, page)
        self.reserved_bytes += grown
        if end is not None and end.free:
            pool.remove(end)
            end.size += grown
        else:
            end = Block(grown, pool, pool.start if end is None else end.address + end.size, before=end)
            if end.before is not None:
                end.before.after = end
            pool.last = end
        pool.add(end)
        return end

    def _split(self, block: Block, size: int) -> None:
        remaining = block.size - size
        fine = block.pool.small or self.expandable_segments
        if remaining < ROUNDING or (not fine and remaining <= SMALL_REQUEST):
            return
        rest = Block(remaining, block.pool, block.address + size, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        if block.pool.last is block:
            block.pool.last = rest
        block.after, block.size = rest, size
        block.pool.add(rest)


class Follower:
    """An allocator to call twice for each storage: when it is allocated and when it is freed."""

    def __init__(self, *, expandable_segments: bool) -> None:
        self.allocator = CachingAllocator(expandable_segments=expandable_segments)
        self._blocks: dict[Sized, Block] = {}

    def __call__(self, storage: Sized) -> None:
        held = self._blocks.pop(storage, None)
        if held is None:
            self._blocks[storage] = self.allocator.allocate(storage.size, stream=storage.stream)
        else:
            self.allocator.release(held)


def _merge(block: Block, neighbour: Block) -> None:
    """Joins a free neighbour to a block."""
    block.size += neighbour.size
    if block.before is neighbour:
        block.before, block.address = neighbour.before, neighbour.address
        if block.before is not None:
            block.before.after = block
    else:
        block.after = neighbour.after
        if block.after is not None:
            block.after.before = block
        if block.pool.last is neighbour:
            block.pool.last = block


def _segment_size(size: int) -> int:
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < MIDDLE_REQUEST:
        return MIDDLE_SEGMENT
    return _rounded(size, LARGE_ROUNDING)


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
