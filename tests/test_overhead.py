"""Overhead: a tiny step, rehearsed and taken."""

from surefoot.planning.timing.call_overhead import call_seconds


def test_what_a_step_takes_longer_is_shared_by_its_calls():
    """On a clock that goes on by a second with each look, a call takes one and so does a phase."""
    looks = iter(range(10**9))
    found = call_seconds(clock=lambda: float(next(looks)))
    assert list(found) == ["forward", "backward", "update"]
    assert all(-1 < seconds < -0.9 for seconds in found.values()), found
