"""The token ledger: every token of a corpus is somewhere in it, and the batches agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import token_ledger as module
from surefoot.data.batches import order_seed
from surefoot.data.formats import open_corpus
from surefoot.data.mixture import Mixture
from surefoot.data.order import sample_ids
from surefoot.data.packing import IGNORED, PackedDocuments
from surefoot.data.token_ledger import ledger_of_run, token_ledger
from surefoot.data.windows import TokenWindows
from tests.data.corpora import random_documents, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    write_corpus(folder, {"web": random_documents(25, 90), "books": random_documents(12, 300, seed=1)})
    return open_corpus(folder)


@pytest.fixture(scope="module", params=["windows", "packed", "mixture"])
def data(request, corpus):
    if request.param == "windows":
        return TokenWindows(corpus, 32)
    if request.param == "packed":
        return PackedDocuments(corpus, 32)
    parts = {name: TokenWindows(corpus.only("train", name), 32) for name in ("web", "books")}
    return Mixture(parts, {"web": 3, "books": 1}, samples=250)


@settings(max_examples=25, deadline=None)
@given(samples=st.integers(0, 900), seed=st.integers(0, 9))
def test_the_ledger_agrees_with_the_batches(data, samples, seed):
    ledger = token_ledger(data, samples, seed=seed)
    ids = sample_ids(len(data), order_seed(seed), 0, samples)
    targets = data.__getitems__(ids)[1] if samples else np.zeros((0, 32))
    assert ledger.positions == samples * 32
    assert ledger.padding == int((targets == IGNORED).sum())
    for each in ledger.sources:
        assert each.held == each.usable + each.masked + each.cropped
        assert 0 <= each.valid <= each.usable
        assert each.left >= 0
        assert min(each.repeated, each.masked, each.cropped) >= 0
    if not isinstance(data, Mixture):
        assert ledger.trained - sum(each.repeated for each in ledger.sources) == 32 * min(samples, len(data)) - int(
            (targets[: len(data)] == IGNORED).sum()
        )


@settings(max_examples=25, deadline=None)
@given(steps=st.integers(1, 60), passed=st.sets(st.integers(0, 70), max_size=4), seed=st.integers(0, 9))
def test_what_a_run_passed_over_is_not_booked(data, steps, passed, seed):
    ledger = ledger_of_run(data, seed=seed, step_samples=8, steps=steps, passed_over=passed)
    taken = [step for step in range(steps) if step not in passed]
    ids = [sample_ids(len(data), order_seed(seed), 8 * step, 8) for step in taken]
    targets = data.__getitems__(np.concatenate(ids))[1] if ids else np.zeros((0, 32))
    assert ledger.positions == 8 * 32 * len(taken)
    assert ledger.padding == int((targets == IGNORED).sum())


def test_only_tokens_have_a_ledger_and_only_so_many_are_followed(data, monkeypatch):
    settled = {"seed": 0, "step_samples": 8, "steps": 2, "passed_over": ()}
    assert ledger_of_run([1, 2, 3], **settled) is None
    monkeypatch.setattr(module, "MOST_FOLLOWED", 15)
    assert ledger_of_run(data, **settled) is None


def test_a_whole_epoch_leaves_nothing(data):
    told = []
    ledger = token_ledger(data, len(data), tell=told.append)
    if not isinstance(data, Mixture):
        assert [each.left for each in ledger.sources] == [0, 0]
        assert {each.source: each.epochs for each in ledger.sources} == {"books": 1, "web": 1}
    else:
        assert ledger.tally().total("tokens/repeated/web") > 0
        epochs = {each.source: each.epochs for each in ledger.sources}
        assert epochs == pytest.approx(data.epochs())
    assert ledger.tokens_per_parameter(1000) == ledger.trained / 1000
    assert ledger.tally().total("tokens/left") == ledger.left
    assert ledger.totals(1000)["tokens_per_parameter"] == ledger.trained / 1000
