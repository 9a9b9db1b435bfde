"""The order: a bijection of any size, the same wherever it is asked from."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surefoot.data.order import epoch_key, permuted, sample_ids

SEEDS = st.integers(-(2**70), 2**70)


def epoch_of(samples: int, seed: int, epoch: int) -> np.ndarray:
    return sample_ids(samples, seed, epoch * samples, samples)


@given(samples=st.integers(1, 20_000), seed=SEEDS, epoch=st.integers(0, 2**40))
@example(samples=1, seed=0, epoch=0)
@example(samples=2, seed=0, epoch=1)
@example(samples=4096, seed=-1, epoch=3)
@example(samples=4097, seed=2**64, epoch=3)
def test_an_epoch_holds_every_sample_once(samples, seed, epoch):
    assert np.array_equal(np.sort(epoch_of(samples, seed, epoch)), np.arange(samples))


@given(
    samples=st.integers(1, 3000),
    seed=SEEDS,
    first=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 9000), max_size=4),
)
def test_positions_do_not_depend_on_how_they_are_asked_for(samples, seed, first, cuts):
    at, pieces = first, []
    for count in cuts:
        pieces.append(sample_ids(samples, seed, at, count))
        at += count
    whole = sample_ids(samples, seed, first, at - first)
    assert np.array_equal(np.concatenate([*pieces, np.empty(0, np.int64)]), whole)
    assert whole.dtype == np.int64
    one_by_one = [sample_ids(samples, seed, first + k, 1).item() for k in range(min(3, at - first))]
    assert whole[:3].tolist() == one_by_one


@given(samples=st.integers(2**32, 2**62), key=st.integers(0, 2**64 - 1), data=st.data())
def test_far_indices_stay_distinct_and_in_range(samples, key, data):
    start = data.draw(st.integers(0, samples - 5000))
    places = permuted(np.arange(start, start + 5000, dtype=np.uint64), samples, key)
    assert places.max() < samples
    assert np.unique(places).size == 5000


def test_an_order_of_fifteen_trillion_tokens_is_sampled_without_a_repeat():
    samples = 15 * 10**12 // 4096
    with_first = np.random.default_rng(0).choice(samples, 1_000_000, replace=False).astype(np.uint64)
    places = permuted(with_first, samples, epoch_key(0, 0))
    assert places.max() < samples
    assert np.unique(places).size == 1_000_000


@pytest.mark.long
@pytest.mark.parametrize("samples", [10**5, 2**20, 2**20 + 1, 10**6 + 3, 9_999_991, 10**7])
def test_a_large_epoch_holds_every_sample_once(samples):
    seen = np.zeros(samples, bool)
    seen[epoch_of(samples, 7, 3)] = True
    assert seen.all()


def test_the_order_looks_random():
    samples = 1_000_003
    places = epoch_of(samples, 0, 0)
    grid = np.histogram2d(np.arange(samples), places, bins=(64, 64))[0]
    expected = samples / 64**2
    assert ((grid - expected) ** 2 / expected).sum() / 63**2 == pytest.approx(1, abs=0.08)
    assert abs(np.corrcoef(np.arange(samples), places)[0, 1]) < 0.004
    assert (np.abs(np.diff(places)) == 1).sum() < 12  # a random order has two
    assert (places == epoch_of(samples, 0, 1)).sum() < 8  # two random orders share one place
    assert (places == epoch_of(samples, 1, 0)).sum() < 8


def test_every_order_of_few_samples_comes_about_as_often():
    keys = epoch_key(0, np.arange(24_000))
    orders = np.stack([permuted(np.full(24_000, index), 4, keys) for index in range(4)], axis=1)
    _, often = np.unique(orders, axis=0, return_counts=True)
    assert len(often) == 24
    assert often.min() > 800
    assert often.max() < 1200


def test_golden_positions():
    """A run resumed by a later version must go on with the same samples."""
    assert sample_ids(10, 0, 0, 20).tolist() == GOLDEN_TEN
    assert sample_ids(15 * 10**12 // 4096, 1, 10**13, 3).tolist() == GOLDEN_FAR


GOLDEN_TEN = [1, 4, 7, 6, 9, 2, 8, 0, 3, 5, 2, 0, 8, 3, 9, 1, 6, 4, 5, 7]
GOLDEN_FAR = [136895420, 1946927495, 3085920878]


def test_an_order_of_any_size_takes_no_memory():
    tracemalloc.start()
    sample_ids(2**50, 0, 2**49, 8)
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def test_no_samples_have_no_order():
    with pytest.raises(ValueError, match="0 samples"):
        sample_ids(0, 0, 0, 1)
