"""Mixtures: shares to the nearest sample, repeats only when a source is used up."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.data.formats import open_corpus
from surefoot.data.mixture import Mixture
from surefoot.data.order import sample_ids
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from tests.data.corpora import random_documents, write_corpus


def places(mixture: Mixture, indices) -> list[tuple[str, int]]:
    found = [None] * len(indices)
    for name, here, inside in mixture.by_source(np.asarray(indices, np.int64)):
        for place, sample in zip(here.tolist(), inside.tolist(), strict=True):
            found[place] = name, sample
    return found


WEIGHTS = st.lists(st.floats(0.01, 10), min_size=1, max_size=5)


@given(weights=WEIGHTS, sizes=st.lists(st.integers(1, 300), min_size=5, max_size=5), samples=st.integers(0, 1000))
def test_shares_are_exact_and_repeats_are_whole_epochs(weights, sizes, samples):
    sources = {f"s{number}": range(size) for number, size in enumerate(sizes[: len(weights)])}
    mixture = Mixture(sources, dict(zip(sources, weights, strict=True)), samples=samples)
    assert len(mixture) == samples
    given_by = Counter(places(mixture, range(samples)))
    for name, source in sources.items():
        count = sum(times for (from_source, _), times in given_by.items() if from_source == name)
        assert abs(count - mixture.shares[name] * samples) < 1
        often = [given_by[name, sample] for sample in source]
        assert max(often) - min(often) <= 1
        assert mixture.epochs()[name] == count / len(source)


def test_without_a_length_nothing_is_repeated():
    mixture = Mixture({"web": range(900), "books": range(40)}, {"web": 3, "books": 1})
    assert len(mixture) == 160
    assert max(Counter(places(mixture, range(160))).values()) == 1
    assert mixture.epochs()["books"] == 1


def test_batches_of_windows(tmp_path):
    write_corpus(tmp_path, {"web": random_documents(30, 200), "books": random_documents(9, 200, seed=1)})
    corpus = open_corpus(tmp_path)
    sources = {name: TokenWindows(corpus.only("train", name), 20) for name in ("web", "books")}
    mixture = Mixture(sources, {"web": 0.5, "books": 0.5}, samples=400)
    ids = sample_ids(len(mixture), 0, 0, 16)
    mixture.will_need(ids)
    tokens, targets = mixture.__getitems__(ids)
    assert tokens.shape == (16, 20)
    for row, (name, inside) in enumerate(places(mixture, ids)):
        assert torch.equal(tokens[row], sources[name][inside][0])
        assert torch.equal(targets[row], mixture[int(ids[row])][1])
    assert mixture.identity() != Mixture(sources, {"web": 0.5, "books": 0.6}, samples=400).identity()


def test_a_mixture_of_nothing_is_refused():
    with pytest.raises(DataError, match="do not have the same names"):
        Mixture({"web": range(3)}, {"books": 1.0})
    with pytest.raises(DataError, match="above 0"):
        Mixture({"web": range(3)}, {"web": 0.0})


def test_a_place_is_a_function_of_the_sample_alone():
    mixture = Mixture({"web": range(50), "books": range(50)}, {"web": 1, "books": 2}, samples=200)
    whole = places(mixture, np.arange(200))
    assert [places(mixture, [index])[0] for index in (199, 3, 77)] == [whole[199], whole[3], whole[77]]
