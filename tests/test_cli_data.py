"""surefoot data, as a person types it."""

import json

import numpy as np
import pytest

from surefoot import load_recipe
from surefoot.errors import DataError, DiskError, RunError
from tests.command_line import process, surefoot


@pytest.mark.parametrize("command", [(), ("tokenize",), ("inspect",), ("verify",), ("count",)])
def test_every_help_says_what_the_command_does(command):
    done = surefoot("data", *command, "--help")
    assert done.exit_code == 0
    for name in ("--json",) if command else ("tokenize", "inspect", "verify", "count"):
        assert name in done.stdout


def test_from_text_to_a_ledger(tmp_path, monkeypatch):
    pytest.importorskip("datatrove")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for number in range(40):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} bottles of beer on the wall\n" * 20)
    words = ("data", "tokenize", "texts", "--to", "corpus", "--held-out", "0.2", "--json")
    made = process(*words, cwd=tmp_path)
    assert made.stderr == ""
    manifest = json.loads(made.stdout)
    assert manifest["vocabulary"] == 257
    assert json.loads(surefoot(*words).stdout) == manifest

    inspected = surefoot("data", "inspect", "corpus", "--context", "64")
    assert inspected.exit_code == 0
    assert "documents-longer-than-context" in inspected.stdout
    assert "every page hashed" in inspected.stdout
    verified = json.loads(surefoot("data", "verify", "corpus", "--json").stdout)
    assert verified["files"] == 2 * len(manifest["shards"])
    counted = json.loads(surefoot("data", "count", "corpus", "--context", "64", "--json").stdout)
    (source,) = counted["ledger"]["sources"]
    assert counted["totals"]["trained"] == source["valid"]
    assert source["valid"] + source["masked"] + source["cropped"] == source["held"]
    packed = surefoot("data", "count", "corpus", "--context", "64", "--packed", "--parameters", "1000")
    assert "tokens per parameter" in packed.stdout
    assert "held-out" in surefoot("data", "count", "corpus").stdout

    shard = tmp_path / "corpus" / manifest["shards"][0]["file"]
    content = bytearray(shard.read_bytes())
    content[5000] ^= 1
    shard.write_bytes(content)
    named = "is damaged: page 1, the 4096 bytes from offset 4,096"
    assert named in str(surefoot("data", "verify", "corpus").exception)
    knobs = ("layers=1", "width=32", "context=64", "micro_batch_size=32", "global_batch_tokens=2048", "max_steps=20")
    trained = surefoot("train", "gpt", "corpus=corpus", *knobs)
    assert isinstance(trained.exception, DataError)
    assert named in str(trained.exception)


def test_tokens_of_others_are_adopted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    assert "--adopt" in str(surefoot("data", "verify", "train.bin").exception)
    assert surefoot("data", "verify", ".", "--adopt", "--vocabulary", "1000").exit_code == 0
    assert surefoot("data", "inspect", ".", "--json").exit_code == 0
    recipe = load_recipe("gpt", ["corpus=.", "layers=1", "width=32", "context=64"])
    assert recipe.model().token.num_embeddings == 1000
    assert len(recipe.data()) == 15


@pytest.mark.parametrize(
    ("to", "kind", "message"),
    [("x" * 300, DiskError, "could not be written"), ("text/one.txt", RunError, "is a file, not a directory")],
)
def test_a_corpus_that_cannot_be_made_there_is_refused_in_one_line(to, kind, message, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "one.txt").write_text("words\n")
    result = surefoot("data", "tokenize", str(tmp_path / "text"), "--to", str(tmp_path / to))
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)
