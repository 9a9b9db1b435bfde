"""Checks on data: each has a corpus that it speaks of, and a sound one of which it says nothing."""

import dataclasses

import numpy as np
import pytest
import torch

from surefoot.data.formats import open_corpus
from surefoot.data.inspect import CHECKS, inspect_batch, inspect_corpus
from surefoot.data.shards import Corpus
from surefoot.data.windows import TokenWindows
from tests.data.corpora import random_documents, write_corpus


def found(corpus: Corpus, **options) -> dict[str, str]:
    findings = inspect_corpus(corpus, **options)
    assert findings.checks == CHECKS
    assert {each.check for each in findings.findings} <= set(CHECKS)
    return {each.check: each.severity for each in findings.findings}


def relabelled(corpus: Corpus, **changes) -> Corpus:
    return Corpus(corpus.folder, dataclasses.replace(corpus.manifest, **changes))


@pytest.fixture
def sound(tmp_path):
    write_corpus(tmp_path, {"a": random_documents(40, 60), "a.held-out": random_documents(9, 60, seed=1)})
    return open_corpus(tmp_path)


def test_a_sound_corpus_has_no_finding(sound):
    told = []
    assert found(sound, tell=told.append) == {}
    assert sum(told) == 2 * sound.manifest.tokens


def test_a_token_beyond_the_vocabulary_is_found_with_its_place(sound):
    tokens = sound.tokens(0, 0, sound.manifest.shards[0].tokens)
    limit = int(np.sort(np.unique(tokens))[-3])
    (finding,) = (
        each
        for each in inspect_corpus(relabelled(sound, vocabulary=limit + 1)).findings
        if each.where.startswith("a.ds")
    )
    assert (finding.check, finding.severity) == ("token-out-of-range", "error")
    assert finding.where == f"a.ds, token {np.flatnonzero(tokens > limit)[0]:,}"


def test_a_vocabulary_that_does_not_fit_the_dtype_is_found(sound):
    assert found(relabelled(sound, vocabulary=70_000)) == {"dtype-too-narrow": "error"}


def test_a_dtype_that_is_too_wide_is_mentioned(tmp_path):
    write_corpus(tmp_path, {"a": random_documents(5, 60)}, 70_000)
    assert found(relabelled(open_corpus(tmp_path), vocabulary=60_000)) == {"dtype-too-narrow": "info"}


def test_tokens_that_nobody_has_hashed_are_mentioned(tmp_path):
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    assert found(open_corpus(tmp_path / "train.bin", verify=False, vocabulary=100)) == {"tokens-not-hashed": "warning"}
    assert found(open_corpus(tmp_path / "train.bin", verify=False, vocabulary=99))["token-out-of-range"] == "error"


def test_held_out_documents_that_were_trained_on_are_found(tmp_path):
    documents = random_documents(30, 60)
    write_corpus(tmp_path, {"a": documents, "a.held-out": [*random_documents(5, 60, seed=1), documents[7]]})
    (finding,) = inspect_corpus(open_corpus(tmp_path)).findings
    assert (finding.check, finding.severity) == ("held-out-seen-in-training", "error")
    assert finding.where == "document 5 of a.held-out.ds is document 7 of a.ds"


def test_repeated_documents_are_found(tmp_path):
    write_corpus(tmp_path, {"a": random_documents(30, 60) * 2})
    assert found(open_corpus(tmp_path)) == {"repeated-documents": "warning"}


def test_documents_longer_than_the_context_and_padding_are_found(tmp_path):
    write_corpus(tmp_path, {"a": [np.full(101, number) for number in range(20)]})
    corpus = open_corpus(tmp_path)
    assert found(corpus, context=100) == {}
    assert found(corpus, context=50) == {"documents-longer-than-context": "info"}
    assert found(corpus, context=120) == {"padding-above-a-tenth": "warning"}


def test_a_sound_batch_has_no_finding(sound):
    batch = TokenWindows(sound, 16).__getitems__(range(4))
    assert inspect_batch(batch, vocabulary=50_257) == ()
    masked = batch[1].clone()
    masked[:, :3] = -100
    assert inspect_batch((batch[0], masked), vocabulary=50_257) == ()


@pytest.mark.parametrize(("shift", "severity"), [(0, "warning"), (2, "error"), (3, "error")])
def test_targets_that_are_not_one_ahead_are_found(shift, severity):
    stream = torch.arange(64).view(2, 32)
    (finding,) = inspect_batch((stream[:, :20], stream[:, shift : 20 + shift]), vocabulary=64)
    assert (finding.check, finding.severity) == ("shifted-labels", severity)
    assert f"targets are {shift} ahead" in finding.seen


def test_ids_beyond_the_model_are_found_in_a_batch():
    stream = torch.arange(65).view(1, 65)
    checks = [each.seen for each in inspect_batch((stream[:, :-1], stream[:, 1:]), vocabulary=64)]
    assert checks == ["targets from 1 to 64 in a vocabulary of 64"]
