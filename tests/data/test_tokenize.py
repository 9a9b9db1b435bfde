"""Tokenising: the reference's tokens, special tokens only where they belong, and the same bits after any kill."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import time
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("datatrove")
pytest.importorskip("fastokens")

from surefoot.data import datatrove_steps as steps
from surefoot.data.formats import open_corpus
from surefoot.data.tokenize import tokenize
from surefoot.data.tokenizer import BytePairTokenizer, ByteTokenizer, train_byte_pairs
from surefoot.errors import DataError
from tests.waiting import until

STDLIB = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_byte_pairs((path.read_text(encoding="utf-8") for path in STDLIB[:40]), 1024, path)
    found = BytePairTokenizer(path)
    found.path = path
    return found


@pytest.fixture
def texts(tmp_path) -> Path:
    """Three kinds of files, and some that hold no text."""
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("To be, or not to be", encoding="utf-8")
    (folder / "deep" / "b.md").write_text("naïve 日本語 🙂\n", encoding="utf-8")
    (folder / "empty.txt").write_text("")
    (folder / "binary.bin").write_bytes(b"\xff\xfe\0")
    (folder / ".hidden").write_text("not me")
    lines = [{"text": f"line {number} <|endoftext|>"} for number in range(5)]
    lines += [{"text": "half \ud83d"}, {"text": ""}]
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


EXPECTED = [b"To be, or not to be", *(f"line {number} <|endoftext|>".encode() for number in range(5)), b"half ?"]
EXPECTED += ["naïve 日本語 🙂\n".encode()]


def documents(folder: Path, part: str = "") -> list[list[int]]:
    corpus = open_corpus(folder).only(part)
    found = []
    for shard, each in enumerate(corpus.manifest.shards):
        ends = [0, *corpus.ends(shard).tolist()]
        stream = corpus.tokens(shard, 0, each.tokens)
        found += [stream[first:end].tolist() for first, end in pairwise(ends)]
    return found


def test_bytes_come_back_as_they_were(texts, tmp_path):
    manifest = tokenize([str(texts)], tmp_path / "corpus")
    assert sorted(bytes(each[:-1]) for each in documents(tmp_path / "corpus")) == sorted(EXPECTED)
    assert all(each[-1] == 256 for each in documents(tmp_path / "corpus"))
    assert (manifest.vocabulary, manifest.dtype, manifest.documents) == (257, "uint16", 8)
    assert manifest.text_bytes == sum(map(len, EXPECTED)) == manifest.tokens - 8
    assert {shard.source for shard in manifest.shards} == {"texts"}


def test_text_that_spells_a_special_token_stays_text(texts, tokenizer, tmp_path):
    manifest = tokenize([f"odd={texts}/*.jsonl"], tmp_path / "corpus", tokenizer=str(tokenizer.path), audit=1)
    found = documents(tmp_path / "corpus")
    assert len(found) == 6
    assert [each.count(manifest.end_of_document) for each in found] == [1] * 6
    assert all(each[-1] == manifest.end_of_document for each in found)
    assert manifest.end_of_document == manifest.vocabulary - 1 == 1023
    assert {shard.source for shard in manifest.shards} == {"odd"}
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "corpus" / "tokenizer.json"))
    assert library.encode("line 0 <|endoftext|>").ids.count(1023) == 1  # as it is, the tokenizer would have
    assert library.decode(found[0][:-1]) == "line 0 <|endoftext|>"


def test_a_byte_pair_encoding_is_learned_on_the_spot(tmp_path):
    manifest = tokenize([f"code={STDLIB[0].parent}/a*.py"], tmp_path / "corpus", tokenizer="bpe:600", held_out=0.2)
    assert manifest.vocabulary == 600
    assert manifest.tokens < 0.6 * manifest.text_bytes
    parts = manifest.tally().under("documents")
    assert 0 < parts["held-out"] < parts["train"]
    seen = {tuple(each) for each in documents(tmp_path / "corpus", "train")}
    assert not seen & {tuple(each) for each in documents(tmp_path / "corpus", "held-out")}


def test_the_reference_disagreeing_fails_the_job(texts, tokenizer, tmp_path, monkeypatch):
    encode = BytePairTokenizer.encode
    monkeypatch.setattr(BytePairTokenizer, "encode", lambda self, each: (ids[::-1] for ids in encode(self, each)))
    with pytest.raises(DataError, match="disagree from token 0"):
        tokenize([str(texts)], tmp_path / "corpus", tokenizer=str(tokenizer.path))
    assert not (tmp_path / "corpus" / "manifest.json").exists()


def adversarial(count: int) -> list[str]:
    """Combining marks, scripts, emoji, controls, runs of spaces, long words, broken JSON, special tokens."""
    chance = random.Random(0)
    alphabets = [
        "abcXYZ",
        "01234567890",
        " \t\n\r\u00a0\u3000",
        "\u0301\u0308\u20dd",
        "日本語中文한국어",
        "🙂👩‍👩‍👧🇫🇷",
        "\x00\x07\x7f\u200b\ufeff",
    ]
    alphabets += ["'s'll've'RE", "<|endoftext|>", '()[]{}"\\/,.;:', "ÀÉßœ", "اَلْعَرَبِيَّةُ", "नमस्ते", "\U0001d54f\U000e0001"]
    made = []
    for _ in range(count):
        pieces = []
        for _ in range(chance.randrange(1, 12)):
            alphabet = chance.choice(alphabets)
            pieces.append("".join(chance.choice(alphabet) for _ in range(chance.randrange(1, 9))))
        made.append("".join(pieces))
    return [*made, "a" * 20_000, " " * 5000, "\n" * 3000, "é" * 4000, "<|endoftext|>" * 50]


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.long)])
def test_the_fast_engine_agrees_with_the_reference_on_adversarial_strings(tokenizer, count):
    texts = adversarial(count)
    for text, fast, right in zip(texts, tokenizer.encode(texts), tokenizer.reference(texts), strict=True):
        assert np.array_equal(fast, right), text
        assert tokenizer.end_of_document not in fast


def test_a_finished_job_is_not_done_again_and_another_is_refused(texts, tmp_path, monkeypatch):
    first = tokenize([str(texts)], tmp_path / "corpus")
    monkeypatch.setattr(steps, "write_shards", lambda *_: pytest.fail("done again"))
    assert tokenize([str(texts)], tmp_path / "corpus") == first
    with pytest.raises(DataError, match="was begun with other texts"):
        tokenize([str(texts)], tmp_path / "corpus", held_out=0.5)


def test_an_executor_that_only_submits_leaves_the_manifest_for_later(texts, tmp_path):
    submitted = []

    class Cluster:
        def __init__(self, *, pipeline, tasks, logging_dir):
            submitted.append((pipeline, tasks, logging_dir))

        def run(self):
            pass

    assert tokenize([str(texts)], tmp_path / "corpus", executor=Cluster) is None
    assert not (tmp_path / "corpus" / "manifest.json").exists()
    (pipeline, tasks, _), *_ = submitted
    assert tasks == 1
    assert all(Path(step).is_absolute() for step in (pipeline[0].paths_file, pipeline[1].folder))
    assert tokenize([str(texts)], tmp_path / "corpus").documents == 8


RAY = """
import sys
from functools import partial
from surefoot.data import tokenize as module
module.SMALL_TASK_BYTES = 1 << 18
if __name__ == "__main__":
    import ray
    from datatrove.executor import RayPipelineExecutor
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    on_ray = partial(RayPipelineExecutor, workers=2, mem_per_cpu_gb=1)
    for name, executor in (("here", None), ("there", on_ray)):
        module.tokenize([f"code={sys.argv[1]}/[a-d]*.py"], name, tokenizer="bpe:500", held_out=0.1, executor=executor)
    ray.shutdown()
"""


@pytest.mark.long
def test_a_job_on_ray_makes_the_same_files(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "job.py").write_text(RAY)
    command = [sys.executable, "job.py", str(STDLIB[0].parent)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    assert len(digests(tmp_path / "there")) > 20
    assert digests(tmp_path / "there") == digests(tmp_path / "here")


def test_a_store_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"cannot list s3://nowhere/x: \w+"):
        tokenize(["s3://nowhere/x"], tmp_path / "corpus")


def test_what_cannot_be_tokenised_is_refused(texts, tmp_path):
    with pytest.raises(DataError, match="no text files"):
        tokenize([f"{texts}/*.none"], tmp_path / "corpus")
    with pytest.raises(DataError, match="a vocabulary has at most 4,194,304 tokens, not 99,999,999,999"):
        tokenize([str(texts)], tmp_path / "corpus", tokenizer="bpe:99999999999")
    os.mkfifo(tmp_path / "pipe")  # reading it would never end
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "device.txt").symlink_to("/dev/zero")
    for pipe in (tmp_path / "pipe", tmp_path / "mixed"):
        with pytest.raises(DataError, match=f"{pipe}.* is not a file: text is read from files and folders"):
            tokenize([str(texts), str(pipe)], tmp_path / "corpus")
    with pytest.raises(DataError, match="two sources have the same name"):
        tokenize([str(texts), str(texts)], tmp_path / "corpus")
    with pytest.raises(DataError, match="no tokenizer 'gpt5'"):
        tokenize([str(texts)], tmp_path / "corpus", tokenizer="gpt5")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(DataError, match="is not empty"):
        tokenize([str(texts)], tmp_path / "full")
    (tmp_path / "t.json").write_text('{"added_tokens": [], "model": {"vocab": {"a": 0}}}')
    with pytest.raises(DataError, match="no special token"):
        BytePairTokenizer(tmp_path / "t.json")
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        BytePairTokenizer(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("model", "vocab", "!"), -5, "the id of token '!' is -5, not a whole number from 0 to 4,294,967,295"),
        (("model", "vocab", "!"), 5.5, "the id of token '!' is 5.5, not a whole number"),
        (("added_tokens", 0, "id"), -7, "the id of token '<|endoftext|>' is -7, not a whole number"),
        (("pre_tokenizer", "pattern", "Regex"), "(a", "unmatched parenthesis at line 1 column"),
        (("model", "merges"), [["zz", "y"]], "Token `zz` out of vocabulary at line 1 column"),
    ],
)
def test_a_tokenizer_with_a_wrong_part_is_refused_with_its_own_name_before_anything_is_written(
    texts, tokenizer, tmp_path, path, value, said
):
    table = json.loads(tokenizer.content)
    table["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False}
    place = reduce(lambda part, key: part[key], path[:-1], table)
    place[path[-1]] = value
    (tmp_path / "wrong.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match=rf"^\S*wrong\.json is not a tokenizer\.json: .*{re.escape(said)}"):
        tokenize([str(texts)], tmp_path / "corpus", tokenizer=str(tmp_path / "wrong.json"))
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("line", ['{"text": "cut', '{"content": "elsewhere"}', "[1]"])
def test_a_line_that_cannot_be_read_stops_the_job(tmp_path, line):
    (tmp_path / "x.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(DataError, match=r"line 2 of x\.jsonl"):
        tokenize([str(tmp_path / "x.jsonl")], tmp_path / "corpus")


def test_bytes_are_their_own_reference():
    (tokens,) = ByteTokenizer().encode(["é"])
    assert tokens.tolist() == [0xC3, 0xA9]


# ------------------------------------------------------------------------------------------- kill -9

KILLED = """
import sys
from surefoot.data import tokenize as module
module.SMALL_TASK_BYTES = 1 << 18
if __name__ == "__main__":
    module.tokenize([f"code={sys.argv[1]}/[a-d]*.py"], sys.argv[2], tokenizer="bpe:500", held_out=0.1)
"""


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_job_ends_in_identical_shards(tmp_path, kills):
    script = tmp_path / "job.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(STDLIB[0].parent)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    chance, done = random.Random(0), 0
    while done < kills:
        folder = tmp_path / f"killed-{done}"
        process = subprocess.Popen(
            [*command, str(folder)], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until((folder / ".job" / "job.json").exists)
        time.sleep(chance.uniform(0, 2.5))  # time itself: killed at any moment
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            done += 1
        process.wait()
        subprocess.run([*command, str(folder)], check=True, capture_output=True)
        assert digests(folder) == digests(tmp_path / "whole")
