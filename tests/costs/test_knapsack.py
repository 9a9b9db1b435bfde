"""Knapsack: as cheap as trying everything, never dearer than taking the best ratios first."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.costs import knapsack
from surefoot.costs.knapsack import Offer, Way, cheapest, ways

offers = st.builds(Offer, st.integers(0, 40), st.integers(0, 40))
few_kinds = st.lists(st.lists(offers, min_size=1, max_size=3), min_size=1, max_size=3).flatmap(
    lambda kinds: st.lists(st.sampled_from(kinds), min_size=1, max_size=6)
)


def of(items, taken) -> tuple[int, int]:
    chosen = [item[offer] for item, offer in zip(items, taken, strict=True)]
    return sum(each.bytes for each in chosen), sum(each.cost for each in chosen)


@given(few_kinds, st.integers(0, 200))
def test_as_cheap_as_the_best_of_all(items, limit):
    every = (of(items, taken) for taken in itertools.product(*(range(len(item)) for item in items)))
    best = min((cost for size, cost in every if size <= limit), default=None)
    found = cheapest(ways(items), limit)
    assert (found and found.cost) == best
    if found is not None:
        assert of(items, found.taken) == (found.bytes, found.cost)
        assert found.bytes <= limit


def greedy(items, limit) -> int | None:
    """Of items that are kept or not: the costliest for their bytes are kept first."""
    free, cost = limit, 0
    for gone, kept in sorted(items, key=lambda item: -item[0].cost / max(1, item[1].bytes)):
        if kept.bytes <= free:
            free -= kept.bytes
        else:
            cost += gone.cost
    return cost


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=14), st.integers(0, 5000))
def test_never_dearer_than_the_best_ratios_first(blocks, limit):
    items = [(Offer(0, cost), Offer(size, 0)) for size, cost in blocks]
    assert cheapest(ways(items), limit).cost <= greedy(items, limit)


def test_where_the_best_ratio_leaves_a_gap_two_others_are_better():
    items = [(Offer(0, cost), Offer(size, 0)) for size, cost in ((6, 70), (5, 50), (5, 50))]
    assert greedy(items, 10) == 100
    assert cheapest(ways(items), 10) == Way(10, 70, (0, 1, 1))


def test_of_alike_items_the_first_take_the_offers_that_are_named_first():
    items = [(Offer(0, 9), Offer(2, 4), Offer(5, 0))] * 4
    assert cheapest(ways(items), 5).taken == (0, 0, 1, 1)
    assert cheapest(ways(items), 11).taken == (1, 1, 1, 2)


def test_ways_go_from_the_fewest_bytes_to_the_least_cost():
    found = ways([(Offer(0, 9), Offer(2, 4), Offer(5, 0))] * 126)
    assert (found[0].cost, found[-1].bytes) == (126 * 9, 126 * 5)
    assert all(one.bytes < other.bytes and one.cost > other.cost for one, other in itertools.pairwise(found))


@pytest.mark.parametrize("most", [1, 7, 50])
def test_too_many_ways_are_thinned_and_stay_within_the_limit(monkeypatch, most):
    items = [(Offer(0, 1000 + 7 * n * n % 101), Offer(1000 + n * n, 0)) for n in range(12)]
    exact = ways(items)
    monkeypatch.setattr(knapsack, "MOST", most)
    thinned = ways(items)
    assert len(thinned) <= most + 1 < len(exact)
    assert thinned[0] == exact[0]
    for limit in range(0, 13000, 500):
        found = cheapest(thinned, limit)
        assert found.bytes <= limit
        assert found.cost >= cheapest(exact, limit).cost
