"""Global batches of tokens: the same for any ranks, micro-batches, workers, and after any number of resumes."""

from contextlib import ExitStack, closing
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data.batches import micro_batches, order_seed
from surefoot.data.formats import open_corpus
from surefoot.data.mixture import Mixture
from surefoot.data.order import sample_ids
from surefoot.data.packing import PackedDocuments
from surefoot.data.windows import TokenWindows
from tests.data.corpora import random_documents, write_corpus

GLOBAL = 16


@pytest.fixture(scope="module", params=["windows", "packed", "mixture"])
def data(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("global")
    write_corpus(folder, {"web": random_documents(20, 60), "books": random_documents(5, 200, seed=1)})
    corpus = open_corpus(folder)
    if request.param == "mixture":
        sources = {name: TokenWindows(corpus.only("train", name), 16) for name in ("web", "books")}
        return Mixture(sources, {"web": 2, "books": 1}, samples=90)
    return (TokenWindows if request.param == "windows" else PackedDocuments)(corpus, 16)


def whole(data, seed: int, step: int) -> list[torch.Tensor]:
    """The global batch of a step, in one piece."""
    return list(data.__getitems__(sample_ids(len(data), order_seed(seed), step * GLOBAL, GLOBAL)))


def pieced(data, seed: int, first: int, steps: int, *, ranks: int, size: int, **how) -> list[list[torch.Tensor]]:
    """The same from every rank's micro-batches, begun at step `first` by as many loaders as there are ranks."""
    micro = GLOBAL // (ranks * size)
    with ExitStack() as opened:
        loaders = [
            opened.enter_context(
                closing(micro_batches(data, size=size, seed=seed, first=first * micro, rank=rank, ranks=ranks, **how))
            )
            for rank in range(ranks)
        ]
        found = []
        for _ in range(steps):
            pieces = [next(loader) for _ in range(micro) for loader in loaders]
            found.append([torch.cat(each) for each in zip(*pieces, strict=True)])
    return found


def same(found: list[list[torch.Tensor]], data, seed: int, first: int) -> bool:
    expected = [whole(data, seed, step) for step in range(first, first + len(found))]
    return all(
        torch.equal(a, b) for got, want in zip(found, expected, strict=True) for a, b in zip(got, want, strict=True)
    )


CUTS = st.sampled_from([(ranks, size) for ranks in (1, 2, 4, 8) for size in (1, 2, 4, 8, 16) if ranks * size <= GLOBAL])
LIVES = st.lists(st.tuples(st.integers(0, 4), CUTS, st.booleans()), min_size=1, max_size=6)
"""Each start of a run: steps until it is stopped, its ranks and micro-batch size, and whether a thread reads ahead."""


@settings(max_examples=40, deadline=None)
@given(lives=LIVES, seed=st.integers(0, 2**40), first=st.integers(0, 10**6))
def test_global_batches_do_not_depend_on_ranks_micro_batches_or_resumes(data, lives, seed, first):
    step = first
    for steps, (ranks, size), ahead in lives:
        assert same(pieced(data, seed, step, steps, ranks=ranks, size=size, ahead=ahead), data, seed, step)
        step += steps


@pytest.mark.parametrize("workers", [1, 2, pytest.param(5, marks=pytest.mark.long)])
def test_global_batches_do_not_depend_on_workers(data, workers):
    """A run with so many workers, resumed with none, and resumed with them on two ranks."""
    for step, (ranks, size, some) in enumerate([(1, 8, workers), (1, 4, 0), (2, 4, workers)]):
        found = pieced(data, 3, 2 * step, 2, ranks=ranks, size=size, workers=some, ahead=True)
        assert same(found, data, 3, 2 * step)


def test_every_sample_once_per_epoch_over_all_ranks(data):
    """Ranks together take each sample once, then each once more, in another order."""
    epochs = 2 * len(data)
    loaders = [micro_batches(data, size=1, seed=5, rank=rank, ranks=4) for rank in range(4)]
    for loader in loaders:
        list(islice(loader, -(-epochs // 4)))
    taken = [number for group in zip(*(loader.taken for loader in loaders), strict=True) for number in group]
    first, second = taken[: len(data)], taken[len(data) : epochs]
    assert sorted(first) == sorted(second) == list(range(len(data)))
    assert first != second
