"""Many ranks: each writes its shards, one of them publishes, and any other number of them can load."""

import subprocess
import sys
from pathlib import Path

import torch

from surefoot.checkpoint.store import Checkpoints
from tests.checkpoint.ranks import whole

ROOT = Path(__file__).parent.parent.parent


def test_shards_of_two_ranks_are_loaded_by_one_two_and_three(folder):
    """And if one rank cannot write, no rank saves, and none waits for ever."""
    command = [sys.executable, "-m", "tests.checkpoint.ranks", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    names = [".metadata", "MANIFEST", "__0_0.distcp", "__1_0.distcp", "state.json"]
    assert sorted(path.name for path in (folder / "step-000000003").iterdir()) == names
    loaded = Checkpoints(folder).newest().load()
    assert all(torch.equal(loaded["model"][name], tensor) for name, tensor in whole().items())
