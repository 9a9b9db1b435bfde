"""Windows: every token of every shard once, however the batches are cut."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import shards
from surefoot.data.formats import open_corpus
from surefoot.data.order import sample_ids
from surefoot.data.windows import TokenWindows
from surefoot.errors import DataError
from tests.data.corpora import random_documents, write_corpus


@pytest.fixture(scope="module", params=[(1, "mapped"), (3, "mapped"), (1, "read"), (3, "read")], ids=str)
def corpus(request, tmp_path_factory):
    folder, (count, how) = tmp_path_factory.mktemp("windows"), request.param
    write_corpus(folder, {f"s{seed}": random_documents(30, 300, seed=seed) for seed in range(count)})
    with pytest.MonkeyPatch.context() as patch:
        if how == "read":
            patch.setattr(shards, "MAPPED_BYTES", 0)
        yield open_corpus(folder)


@settings(max_examples=30, deadline=None)
@given(context=st.integers(1, 700), verify=st.booleans())
def test_windows_follow_each_other_in_every_shard(corpus, context, verify):
    windows = TokenWindows(open_corpus(corpus.folder, verify=verify), context)
    tokens, targets = windows.__getitems__(range(len(windows)))
    assert tokens.dtype == targets.dtype == torch.int64
    expected = []
    for shard, each in enumerate(corpus.manifest.shards):
        stream = torch.from_numpy(corpus.tokens(shard, 0, each.tokens).astype(np.int64))
        expected += [stream[first : first + context + 1] for first in range(0, each.tokens - context, context)]
    assert torch.equal(tokens, torch.stack(expected)[:, :-1])
    assert torch.equal(targets, torch.stack(expected)[:, 1:])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    first=st.integers(0, 10**6),
    samples=st.sampled_from([8, 16, 64]),
    ranks=st.sampled_from([1, 2, 4, 8]),
    micro=st.sampled_from([1, 2, 4, 8]),
)
def test_a_global_batch_does_not_depend_on_ranks_or_micro_batches(corpus, seed, first, samples, ranks, micro):
    windows = TokenWindows(corpus, 50)
    whole, _ = windows.__getitems__(sample_ids(len(windows), seed, first, samples))
    pieces = []
    for rank in range(ranks):
        share = samples // ranks
        for start in range(0, share, min(micro, share)):
            ids = sample_ids(len(windows), seed, first + rank * share + start, min(micro, share))
            pieces.append(windows.__getitems__(ids)[0])
    assert torch.equal(torch.cat(pieces), whole)


def test_an_epoch_holds_every_window_once(corpus):
    windows = TokenWindows(corpus, 33)
    seen = torch.cat([windows.__getitems__(sample_ids(len(windows), 5, first, 1))[0] for first in range(len(windows))])
    inside = windows.__getitems__(range(len(windows)))[0]
    assert sorted(seen.tolist()) == sorted(inside.tolist())


def test_a_data_set_travels_without_its_tokens(corpus):
    """To worker processes, and into copies."""
    windows = TokenWindows(corpus, 33)
    batch = windows.__getitems__([5, 3])
    sent = pickle.dumps(windows)
    assert len(sent) < 3000
    assert torch.equal(pickle.loads(sent).__getitems__([5, 3])[1], batch[1])
    assert copy.deepcopy(windows).corpus.verified
    unverified = TokenWindows(open_corpus(corpus.folder, verify=False), 33)
    assert not pickle.loads(pickle.dumps(unverified)).corpus.verified


def test_look_ahead_changes_nothing(corpus):
    windows = TokenWindows(corpus, 33)
    windows.will_need(range(len(windows)))
    windows.will_need(np.array([0]))


def test_a_corpus_without_one_window_is_refused(corpus):
    with pytest.raises(DataError, match="none of which holds a window of 1,000,001"):
        TokenWindows(corpus, 10**6)
