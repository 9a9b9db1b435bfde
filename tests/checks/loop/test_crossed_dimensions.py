"""Which views can only be a transpose by mistake."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.checks.loop.crossed_dimensions import crosses, takes_colours_for_rows


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ((32, 24, 3), (3, 32, 24), True),
        ((3, 32, 24), (32, 24, 3), True),
        ((16, 32, 24, 3), (16, 3, 32, 24), True),
        ((3072,), (3, 32, 32), False),  # as a file has it
        ((32, 24, 3), (32, 72), False),
        ((32, 24, 1), (1, 32, 24), False),  # one colour lies as it should
        ((5, 4, 3), (3, 5, 4), False),  # no picture
        ((32, 24, 3), (24, 32, 3), False),
        ((16, 32, 24, 3), (48, 32, 24), False),
    ],
)
def test_what_is_taken_for_a_picture(before, after, wrong):
    assert takes_colours_for_rows(before, after) == wrong


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((8, 6, 9), (8, 9, 6)),
        ((8, 6, 3, 3), (8, 9, 6)),
        ((8, 9, 6), (8, 6, 3, 3)),
        ((8, 2, 5, 4), (8, 5, 8)),
        ((2, 8, 5), (8, 10)),
        ((8, 6, 3, 5), (120, 6)),
    ],
)
def test_sizes_in_another_order(before, after):
    assert crosses(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((8, 5, 12), (8, 5, 3, 4)),
        ((8, 5, 3, 4), (40, 12)),
        ((8, 6, 6), (8, 6, 6)),
        ((8, 1, 5), (8, 5, 1)),
        ((48,), (6, 8)),
    ],
)
def test_sizes_in_their_order(before, after):
    assert not crosses(before, after)


SIZES = st.lists(st.integers(2, 7), min_size=2, max_size=5)


@given(SIZES, st.data())
def test_merging_neighbours_and_splitting_them_again_is_no_crossing(sizes, data):
    cut = data.draw(st.integers(1, len(sizes) - 1))
    merged = (*sizes[: cut - 1], sizes[cut - 1] * sizes[cut], *sizes[cut + 1 :])
    assert not crosses(tuple(sizes), merged)
    assert not crosses(merged, tuple(sizes))
