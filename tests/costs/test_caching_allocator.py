"""The allocator's model: its rules by hand, and what must hold for any sequence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.costs.caching_allocator import CachingAllocator

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB),
    ],
)
def test_the_first_segment_by_the_rules(size: int, reserved: int):
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved_bytes == reserved


def test_small_requests_share_a_segment_and_are_rounded_to_512_bytes():
    allocator = CachingAllocator()
    for _ in range(4096):
        allocator.allocate(1)
    assert allocator.allocated_bytes == 4096 * 512 == allocator.reserved_bytes
    allocator.allocate(1)
    assert allocator.reserved_bytes == 4 * MIB


def test_a_large_block_with_little_to_spare_is_given_whole():
    allocator = CachingAllocator()
    block = allocator.allocate(12 * MIB)
    allocator.release(block)
    allocator.allocate(11 * MIB)  # 1 MiB remains: not enough to split
    assert allocator.allocated_bytes == 12 * MIB
    allocator.allocate(1 * MIB + 512)
    assert allocator.reserved_bytes == 32 * MIB


def test_classic_segments_fragment_where_expandable_ones_do_not():
    for expandable, reserved in ((False, 60 * MIB), (True, 40 * MIB)):
        allocator = CachingAllocator(expandable_segments=expandable)
        blocks = [allocator.allocate(20 * MIB) for _ in range(2)]
        for block in blocks:
            allocator.release(block)
        allocator.allocate(20 * MIB)
        allocator.allocate(20 * MIB)
        assert allocator.reserved_bytes == 40 * MIB
        allocator = CachingAllocator(expandable_segments=expandable)
        for block in [allocator.allocate(10 * MIB) for _ in range(2)]:
            allocator.release(block)
        allocator.allocate(40 * MIB)
        assert allocator.reserved_bytes == reserved


def test_streams_do_not_share():
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(20 * MIB, stream=0))
    allocator.allocate(20 * MIB, stream=1)
    assert allocator.reserved_bytes == 40 * MIB


sizes = st.one_of(st.integers(1, MIB), st.integers(MIB, 64 * MIB))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sizes, st.integers(0, 10)), min_size=1, max_size=120), st.booleans())
def test_what_holds_for_any_sequence(requests, expandable):
    allocator = CachingAllocator(expandable_segments=expandable)
    live, asked = [], 0
    for size, choice in requests:
        block = allocator.allocate(size)
        assert block.size >= size
        live.append((size, block))
        asked += size
        if choice < 5:
            size, block = live.pop(choice % len(live))
            allocator.release(block)
            asked -= size
        assert asked <= allocator.allocated_bytes <= allocator.reserved_bytes
    reserved = allocator.reserved_bytes
    for _, block in live:
        allocator.release(block)
    assert allocator.allocated_bytes == 0
    assert allocator.reserved_bytes == reserved
    free = [block for pool in allocator._pools.values() for _, _, block in pool.free]
    assert sum(block.size for block in free) == reserved
    if expandable:
        assert len(free) == len(allocator._pools)  # everything has merged


@given(st.lists(sizes, min_size=1, max_size=40))
def test_with_expandable_segments_a_second_equal_step_reserves_nothing_new(requests):
    allocator = CachingAllocator(expandable_segments=True)
    for repetition in range(2):
        blocks = [allocator.allocate(size) for size in requests]
        for block in blocks:
            allocator.release(block)
        if repetition == 0:
            reserved = allocator.reserved_bytes
    assert allocator.reserved_bytes <= reserved
