"""The boundary: right whatever the amounts are, with few questions where they lie on a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.costs.boundary import Asked, largest_within


class Asking:
    """Answers questions, and remembers them."""

    def __init__(self, amounts, growing=lambda candidate: 0.0):
        self.amounts, self.growing, self.asked = amounts, growing, []

    def __call__(self, candidate: int) -> Asked:
        assert candidate not in self.asked  # each is asked for once
        self.asked.append(candidate)
        return Asked(candidate, self.amounts(candidate), self.growing(candidate))


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.integers(-5, 3000),
    st.integers(1, 60),
    st.floats(0, 1e4),
)
def test_what_is_named_was_asked_for_and_so_was_the_next_one(rises, limit, start, growing):
    amounts = [sum(rises[: each + 1]) for each in range(len(rises))]
    asking = Asking(lambda candidate: amounts[candidate - 1], lambda _: growing)
    held, over = largest_within(range(1, len(rises) + 1), asking, limit, start=start)
    within = [candidate for candidate, amount in enumerate(amounts, 1) if amount <= limit]
    assert held == (within[-1] if within else None)
    assert over == (None if held == len(amounts) else (held or 0) + 1)
    assert {each for each in (held, over) if each is not None} <= {*asking.asked}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(0, 100), st.integers(1, 40))
def test_amounts_that_do_not_always_grow_have_an_answer_all_the_same(amounts, limit, start):
    asking = Asking(lambda candidate: amounts[candidate - 1])
    held, over = largest_within(range(1, len(amounts) + 1), asking, limit, start=start)
    assert held is None or amounts[held - 1] <= limit
    assert over is None or amounts[over - 1] > limit
    assert (over or len(amounts) + 1) == (held or 0) + 1


@given(st.integers(0, 10**10), st.integers(1, 10**9), st.integers(1, 8), st.integers(2, 60))
def test_a_line_takes_three_questions(fixed, slope, start, last):
    limit = fixed + slope * last + slope // 2
    asking = Asking(lambda candidate: fixed + slope * candidate, lambda candidate: slope * candidate)
    assert largest_within(range(1, 10**6), asking, limit, start=start) == (last, last + 1)
    assert len(asking.asked) <= 3 + (last > 8 * start)


@pytest.mark.parametrize(("limit", "found"), [(0, (None, 1)), (12, (6, 12)), (48, (48, None)), (11.9, (4, 6))])
def test_candidates_may_have_gaps(limit, found):
    divisors = [1, 2, 3, 4, 6, 12, 48]
    assert largest_within(divisors, Asking(lambda c: 2 * c if c < 12 else c + 1 - (c == 48)), limit, start=5) == found
