"""Killed at any moment, a run resumes to the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoint.killed import digest, train

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("how", ["sync", "async"])
def test_kills_inside_a_save_lose_nothing_and_change_nothing(tmp_path, how):
    command = [
        sys.executable,
        "-m",
        "tests.checkpoint.killed",
        str(tmp_path / "killed" / "checkpoints"),
        how,
        "10",
        "0",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["kills"] == 10
    assert seen["inside_a_save"] >= 5, "the kills came at the wrong moments; they prove nothing"
    assert (seen["lost"], seen["damaged"], seen["failed"]) == (0, 0, 0), done.stderr
    (tmp_path / "whole").mkdir()
    assert seen["digest"] == digest(train(tmp_path / "whole" / "checkpoints", False))
