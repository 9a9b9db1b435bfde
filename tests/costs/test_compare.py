"""Two series of seconds, and how sure their difference is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.costs.compare import CONFIDENCE, compared
from surefoot.errors import RecipeError


def test_a_real_difference_is_told():
    found = compared("eager", "compiled", [1.0, 1.1, 0.9] * 5, [0.8, 0.88, 0.72] * 5)
    assert found.ratio == pytest.approx(0.8)
    assert found.differs
    assert found.high < 1


def test_noise_is_not_sold_as_speed():
    """Of 400 comparisons of a thing with itself, about 1 in 20 may look like a difference, and no more."""
    generator = random.Random(0)
    alarms = 0
    for _ in range(400):
        first, second = ([generator.lognormvariate(0, 0.2) for _ in range(15)] for _ in range(2))
        alarms += compared("a", "b", first, second).differs
    assert alarms / 400 <= 2 * (1 - CONFIDENCE)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=6, max_size=40))
def test_the_interval_holds_the_median_and_is_as_sure_as_it_says(pairs):
    found = compared("a", "b", *zip(*pairs, strict=True))
    assert found.low <= found.ratio <= found.high
    assert found.confidence >= CONFIDENCE


def test_too_few_rounds_are_refused():
    with pytest.raises(RecipeError, match="5 rounds cannot show"):
        compared("a", "b", [1.0] * 5, [1.0] * 5)
