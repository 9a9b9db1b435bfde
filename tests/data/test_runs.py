"""Runs on tokens, as a person starts them: their ledger, and data that is not what it was."""

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from surefoot import load_recipe
from surefoot.data.formats import open_corpus
from surefoot.errors import DataError, RunError
from surefoot.ways.train import train
from tests.command_line import surefoot
from tests.data.corpora import random_documents, write_corpus

SMALL = ("layers=1", "width=16", "heads=2", "context=32", "micro_batch_size=4", "global_batch_tokens=256")


def corpus_in(folder: Path, seed: int = 0) -> Path:
    """Two sources, and something held out."""
    documents = {
        "web": random_documents(12, 90, vocabulary=300, seed=seed),
        "books": random_documents(4, 300, vocabulary=300, seed=1),
        "web.held-out": random_documents(3, 90, vocabulary=300, seed=2),
    }
    write_corpus(folder, documents, vocabulary=300)
    return folder


def words(corpus: Path, *more: str) -> list[str]:
    return [f"corpus={corpus}", *SMALL, *more]


@pytest.mark.sweep
@pytest.mark.parametrize("packed", ["no", "yes"])
def test_the_ledger_of_a_run_is_what_its_log_says(tmp_path, packed):
    """Step by step, the log names its samples; their targets, looked up by hand, are the ledger's."""
    recipe = load_recipe("gpt", words(corpus_in(tmp_path / "corpus"), "max_steps=16", f"packed={packed}"))
    run = train(recipe, path=str(tmp_path / "run"))
    data, often = recipe.data(), Counter(number for row in run.rows() for number in row.samples)
    assert max(often.values()) > 1
    valid = [int((data[number][1] >= 0).sum()) for number in often]
    booked = run.token_ledger
    assert sum(each.valid for each in booked.sources) == sum(valid)
    assert booked.trained == sum(count * times for count, times in zip(valid, often.values(), strict=True))
    assert booked.positions == run.tokens == 16 * 256
    assert {each.source for each in booked.sources} == {"web", "books"}
    held = open_corpus(tmp_path / "corpus").only("train").manifest.tokens
    assert sum(each.valid + each.left + each.masked + each.cropped for each in booked.sources) == held


def test_the_command_prints_the_ledger_and_bits_per_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus_in(tmp_path / "corpus")
    done = surefoot("train", "gpt", *words(Path("corpus"), "max_steps=4"), "--run", "run")
    assert done.exit_code == 0, done.output
    for text in (done.stdout, surefoot("report", "run").stdout):
        for part in ("books", "web", "trained tokens", "tokens per parameter", "bits/byte", "left"):
            assert part in text
    told = json.loads(surefoot("report", "run", "--json").stdout)
    (run,), (tokens,) = told["runs"], told["tokens"]
    assert tokens["trained"] == run["tokens"] == 4 * 256
    assert tokens["tokens_per_parameter"] == 4 * 256 / run["parameters"]


@pytest.fixture
def interrupted(tmp_path, monkeypatch) -> Path:
    """A run of 8 steps that was stopped after 4, saved; and a shard of the same size with other tokens."""
    monkeypatch.chdir(tmp_path)
    corpus_in(tmp_path / "corpus")
    tokens = np.fromfile(tmp_path / "corpus" / "web.ds", "<u2")
    write_corpus(tmp_path / "other", {"web": [tokens[::-1]]}, vocabulary=300)

    def stop(run, row):
        if row.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = load_recipe("gpt", words(Path("corpus"), "max_steps=8"))
    assert train(recipe, path="run", tell=stop).status == "interrupted"
    return tmp_path


def resumed():
    return surefoot("train", "gpt", *words(Path("corpus"), "max_steps=8"), "--run", "run")


def test_a_shard_replaced_by_one_of_equal_size_is_refused_on_resume(interrupted):
    shard, other = interrupted / "corpus" / "web.ds", interrupted / "other" / "web.ds"
    assert shard.stat().st_size == other.stat().st_size
    shutil.copyfile(other, shard)
    refused = resumed().exception
    assert isinstance(refused, DataError)
    assert str(refused) == (
        "corpus/web.ds is damaged: page 0, the 4096 bytes from offset 0, does not match its hash, or the file was "
        "replaced; restore it from its source, or tokenise the text again"
    )
    shutil.copyfile(f"{other}.pages", f"{shard}.pages")
    refused = resumed().exception
    assert isinstance(refused, DataError)
    assert "corpus/web.ds.pages does not match the manifest: it is damaged or was replaced; restore" in str(refused)
    shard.unlink()
    assert "no file corpus/web.ds" in str(resumed().exception)


def test_a_corpus_that_was_made_again_is_refused_on_resume(interrupted):
    shutil.rmtree(interrupted / "corpus")
    corpus_in(interrupted / "corpus", seed=7)
    refused = resumed().exception
    assert isinstance(refused, RunError)
    assert "the data has changed since the run began" in str(refused)
    assert "restore it, name another directory, or accept the change (--accept-change)" in str(refused)


def test_a_corpus_that_is_as_it_was_goes_on(interrupted):
    done = resumed()
    assert done.exit_code == 0, done.output
    assert json.loads(surefoot("report", "run", "--json").stdout)["tokens"][0]["trained"] == 8 * 256
