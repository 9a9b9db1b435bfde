"""Checks between ranks: two real processes over gloo, one bug at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUGS = {
    "same order": "unsharded-data",
    "samplers of their own": "unsharded-data",
    "called past the wrapper": "diverging-replicas",
    "rates of their own": "diverging-replicas",
    "same randomness": "same-randomness-on-all-ranks",
    "clipped alone": "clipping-by-local-norm",
    "synced every time": "sync-in-every-micro-batch",
    "synced too early": "diverging-replicas",
    "synced never": "diverging-replicas",
    "reduced again": "gradients-reduced-twice",
    "divided again": "gradients-reduced-twice",
    "loss divided": "gradients-reduced-twice",
    "sums divided again": "gradients-reduced-twice",
    "unequal shares": "unequal-step-counts",
    "shards in one file": "shards-lost-in-saving",
    "scores kept to oneself": "metric-of-one-rank",
}


@pytest.mark.sweep
@pytest.mark.parametrize("form", BUGS)
def test_a_bug_between_ranks_is_named_on_both_and_only_that(form: str, found):
    assert [[each[0] for each in rank[form]] for rank in found] == [[BUGS[form]], [BUGS[form]]]


def test_the_remedy_for_diverging_replicas_names_the_cause(found):
    seen = {form: found[0][form][0][2] for form in ("synced too early", "synced never", "called past the wrapper")}
    assert "not in the last micro-batch" in seen["synced too early"]
    assert "no gradient was exchanged in any update" in seen["synced never"]
    assert "not the wrapper" in seen["called past the wrapper"]


FINE = (
    "wrapped", "exchanged in one piece", "exchanged by hand", "shares by hand", "halves of a model",
    "averaged now and then", "shards in files of their own", "stopped together", "sums divided by micro-batches",
    "sums multiplied and divided", "sums of all ranks divided",
)  # fmt: skip


@pytest.mark.parametrize("form", FINE)
def test_ranks_that_do_it_right_find_nothing(form: str, found):
    assert [rank[form] for rank in found] == [[], []]


ALONE = "shards of one rank"


def test_shards_that_one_rank_saves_are_named_on_it(found):
    assert [[each[0] for each in rank[ALONE]] for rank in found] == [["shards-lost-in-saving"], []]


PROGRAM = Path(__file__).parent / "program.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[list[str]]]]:
    """What each of two ranks finds in every program; the processes are started once, for starting is the dear part."""
    folder = str(tmp_path_factory.mktemp("ranks"))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM), str(rank), folder, *FINE, *BUGS, ALONE],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    printed = [rank.communicate() for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]
