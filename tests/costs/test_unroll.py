"""Unrolling: the journal of many blocks from those of a few, for every program that loops over its blocks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.costs.unroll import Irregular, unrolled

words = st.sampled_from("abcd")
numbers = st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-5, 5))
"""What a number adds for each turn, for each block, and at the start."""
plain = st.tuples(words, st.lists(st.integers(0, 3), max_size=2).map(tuple))
turn = st.lists(st.tuples(words, numbers), min_size=1, max_size=4)
program = st.lists(st.tuples(st.lists(plain, min_size=1, max_size=3), turn, st.integers(0, 1)), min_size=1, max_size=4)


def run(program, blocks):
    """The journal of a program: before each loop some plain entries, then a turn for each block, or one fewer."""
    journal = []
    for number, (before, turn, fewer) in enumerate(program):
        journal += [((number, "plain", word), sizes, ()) for word, sizes in before]
        for at in range(blocks - fewer):
            journal += [
                ((number, word), (), (start + at * by_turn + blocks * by_block,))
                for word, (by_turn, by_block, start) in turn
            ]
    return journal


@settings(max_examples=200, deadline=None)
@given(program, st.integers(0, 30))
def test_loops_over_blocks_are_unrolled_to_any_number(program, more):
    assert unrolled([run(program, blocks) for blocks in (3, 4, 5)], more) == run(program, 5 + more)


@settings(max_examples=100, deadline=None)
@given(program, st.data())
def test_a_journal_that_is_not_as_predicted_is_refused(program, data):
    journals = [run(program, blocks) for blocks in (3, 4, 5)]
    at = data.draw(st.integers(0, len(journals[2]) - 1))
    kind, sizes, counted = journals[2][at]
    wrong = (kind, sizes, tuple(number + 1 for number in counted)) if counted else ("other", sizes, counted)
    with pytest.raises(Irregular):
        unrolled([*journals[:2], [*journals[2][:at], wrong, *journals[2][at + 1 :]]], 1)


def test_a_size_that_grows_with_the_blocks_goes_on_growing():
    journals = [[("norms", (4 * 9 * blocks, 9 * blocks), ())] for blocks in (3, 4, 5)]
    assert unrolled(journals, 121) == [("norms", (4 * 9 * 126, 9 * 126), ())]


def test_a_size_that_grows_faster_is_refused():
    with pytest.raises(Irregular, match="entry 0 of the journal with two more blocks is not as predicted"):
        unrolled([[("pairs", (blocks**2,), ())] for blocks in (3, 4, 5)], 1)


def test_what_is_inserted_and_repeats_nothing_is_refused():
    journals = [[("a", (), ())], [("a", (), ()), ("b", (), ())], [("a", (), ()), ("b", (), ()), ("b", (), ())]]
    with pytest.raises(Irregular, match="entry 1 is neither in the shorter journal nor one more turn of a loop"):
        unrolled(journals, 1)
