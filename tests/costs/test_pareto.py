"""The front: nothing on it is beaten, and everything else is."""

from hypothesis import given
from hypothesis import strategies as st

from surefoot.costs.pareto import front


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=40))
def test_the_front_beats_all_the_rest_and_nothing_of_itself(things):
    kept = front(things, lambda thing: thing)
    assert len({*kept}) == len(kept)
    for thing in things:
        better = [other for other in kept if all(a <= b for a, b in zip(other, thing, strict=True))]
        assert better == [thing] if thing in kept else better
