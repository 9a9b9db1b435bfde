"""Rehearsed: a step is its calls and what each costs beside."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from surefoot.costs.rehearsed import rehearsed_time
from surefoot.records.usage import Timed

CALLS = some.builds(
    Timed,
    phase=some.sampled_from(["forward", "loss", "backward", "update", "recompute"]),
    module=some.sampled_from(["", "layers.*", "head"]),
    operator=some.sampled_from(["mm", "add"]),
    is_product=some.booleans(),
    calls=some.integers(1, 100),
    seconds=some.none() | some.floats(0, 1),
)


def test_by_hand():
    timed = [
        Timed("forward", "a", "mm", is_product=True, calls=3, seconds=0.5),
        Timed("backward", "b", "add", is_product=False, calls=2, seconds=0.25),
        Timed("backward", "b", "odd", is_product=False, calls=1, seconds=None),
    ]
    time = rehearsed_time(timed, {"forward": 0.1, "backward": -0.05}, flops=8, peak_flops=4)
    assert time.phases == pytest.approx({"forward": 1.8, "backward": 0.4})
    assert time.bounds == pytest.approx({"products": 1.5, "other operators": 0.5, "overhead": 0.2})
    assert (time.seconds, time.flops_only_seconds) == pytest.approx((2.2, 2.0))
    assert "no time for odd" in time.assumptions
    assert "3 of 6 operator calls" in time.assumptions[0]


@given(some.lists(CALLS), some.floats(-1, 1), some.floats(-1, 1))
def test_phases_modules_and_bounds_each_add_up_to_the_step(timed, forward, backward):
    time = rehearsed_time(timed, {"forward": forward, "backward": backward})
    for parts in (time.phases, time.modules, time.bounds):
        assert sum(parts.values()) == pytest.approx(time.seconds)
    assert min(time.phases.values(), default=0) >= 0


@given(some.lists(CALLS, min_size=1))
def test_twice_as_slow_takes_twice_as_long(timed):
    slower = [Timed(**{**vars(each), "seconds": each.seconds and 2 * each.seconds}) for each in timed]
    assert rehearsed_time(slower, {}).seconds == pytest.approx(2 * rehearsed_time(timed, {}).seconds)


@pytest.mark.parametrize("phase", ["loss", "recompute"])
def test_a_call_from_python_costs_what_it_costs_in_the_forward(phase):
    timed = [Timed(phase, "", "add", is_product=False, calls=2, seconds=1.0)]
    assert rehearsed_time(timed, {"forward": 0.5}).seconds == pytest.approx(3.0)
