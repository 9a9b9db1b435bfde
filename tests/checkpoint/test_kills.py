"""Killed at any moment, a run resumes to the same bits."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


MEMORY = Path("/dev/shm")
"""A kill takes the process, not what the kernel holds: a disk in memory shows the same, and sooner."""


def trained(how: str, kills: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None) as folder:
        command = [sys.executable, "-m", "tests.checkpoint.killed", f"{folder}/checkpoints", how, str(kills), "24", "0"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def uninterrupted() -> str:
    return trained("sync", 0)["digest"]


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["sync", "async"])
def test_kills_inside_a_save_lose_nothing_and_change_nothing(uninterrupted, how):
    seen = trained(how, 10)
    assert seen["kills"] == 10
    assert seen["inside_a_save"] >= 5, "the kills came at the wrong moments; they prove nothing"
    assert (seen["lost"], seen["damaged"], seen["failed"]) == (0, 0, 0)
    assert seen["digest"] == uninterrupted
