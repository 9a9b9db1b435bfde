"""Checks between ranks: two real processes over gloo, one bug at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "ranks_program.py"
BUGS = (
    "unsharded-data", "diverging-replicas", "same-randomness-on-all-ranks", "clipping-by-local-norm",
    "sync-in-every-micro-batch", "gradients-reduced-twice", "unequal-step-counts",
)  # fmt: skip
LOST = ["shards-lost-in-saving", "error"]
SAVING = ("shards-of-one-rank", "shards-in-one-file", "shards-in-files-of-their-own")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[list[str]]]]:
    """What each of two ranks finds in every program; the processes are started once, for starting is the dear part."""
    folder = str(tmp_path_factory.mktemp("ranks"))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM), str(rank), folder, "none", *BUGS, *SAVING],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    printed = [rank.communicate() for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), printed
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_between_ranks_is_named_on_both_and_only_that(bug: str, found):
    assert [[each[0] for each in rank[bug]] for rank in found] == [[bug], [bug]]


def test_ranks_that_do_it_right_find_nothing(found):
    assert [rank["none"] for rank in found] == [[], []]


def test_shards_that_one_rank_saves_or_that_share_a_file_are_named(found):
    assert [[each[:2] for each in rank["shards-in-one-file"]] for rank in found] == [[LOST], [LOST]]
    assert [[each[:2] for each in rank["shards-of-one-rank"]] for rank in found] == [[LOST], []]
    assert [rank["shards-in-files-of-their-own"] for rank in found] == [[], []]
