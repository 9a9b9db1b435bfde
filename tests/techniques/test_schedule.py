"""Schedules: the factor of every step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.techniques.schedule import constant, warmup_cosine


@given(warmup=st.integers(1, 50), steps=st.integers(51, 500), floor=st.floats(0, 1))
def test_warmup_rises_to_one_and_the_cosine_falls_to_the_floor(warmup, steps, floor):
    factor = warmup_cosine(warmup_steps=warmup, floor=floor)
    rising = [factor(step, steps) for step in range(warmup)]
    falling = [factor(step, steps) for step in range(warmup, steps + 1)]
    assert rising == sorted(rising)
    assert rising[-1] == 1.0
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(1.0)
    assert falling[-1] == pytest.approx(floor)


def test_constant_is_one():
    assert {constant()(step, 10) for step in range(10)} == {1.0}
