"""A rank that is gone is named by those that are left; what else goes wrong between ranks is not taken for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

from surefoot import read_run
from surefoot.errors import RankLost
from surefoot.world import lost_ranks
from surefoot.world.lost_ranks import leave, lost, says_gone
from tests.waiting import until

GONE = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234")
MISMATCH = RuntimeError("[gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 100 vs 76")


@pytest.fixture
def store(monkeypatch) -> HashStore:
    monkeypatch.setattr(lost_ranks, "SECONDS", 0.3)
    return HashStore()


def test_only_what_a_backend_says_of_a_peer_counts():
    assert says_gone(GONE) == "Connection closed by peer"
    assert says_gone(MISMATCH) == ""
    assert says_gone(ConnectionResetError("Connection reset by peer")) == ""
    assert says_gone(RuntimeError("Connection reset by peer")) == ""
    wrapped = ValueError("could not save")
    wrapped.__cause__ = GONE
    assert says_gone(wrapped) == "Connection closed by peer"


def test_of_two_ranks_it_is_the_other(store):
    for each in (store, None):
        found = lost(each, GONE, rank=0, ranks=2, step=7)
        assert str(found).startswith("rank 1 was lost in step 7: Connection closed by peer, and no error was raised")
        assert not found.told


def test_of_many_ranks_it_is_the_one_that_neither_beats_nor_left(store, monkeypatch):
    for rank in range(4):
        store.set(str(rank), "1 7 ")
    leave(store, 0, GONE)  # it has noticed already
    monkeypatch.setattr(time, "sleep", lambda _: store.set("2", f"{time.monotonic()} 7 "))
    found = lost(store, GONE, rank=3, ranks=4)
    assert str(found).startswith("rank 1 was lost: ")
    assert found.told  # rank 0 reports it


def test_a_machine_that_is_gone_is_all_of_its_ranks(store, monkeypatch):
    for rank in range(4):
        store.set(str(rank), "1 7 ")
    leave(store, 1, GONE)
    found = lost(store, GONE, rank=0, ranks=4)
    assert str(found).startswith("ranks 2, 3 were lost: ")
    assert not found.told


def test_a_rank_that_raised_was_not_killed(store):
    leave(store, 1, ValueError("bad sample\nmore"))
    found = str(lost(store, GONE, rank=0, ranks=2, step=3))
    assert found == "rank 1 ended in step 3 with ValueError: bad sample; look for its own message above"


def test_where_nothing_is_known_no_rank_is_accused():
    assert "another rank was lost" in str(lost(None, GONE, rank=0, ranks=3))


@pytest.mark.parametrize("error", [MISMATCH, ValueError("mine"), RankLost("named already")])
def test_other_errors_stay_as_they_are(store, error):
    assert lost(store, error, rank=0, ranks=2) is None


RECIPE = """
import os
import time

import torch
from surefoot import Recipe
from torch.utils.data import TensorDataset

def slow(raises: bool = False) -> Recipe:
    def loss(model, batch):
        time.sleep(0.02)
        if raises and os.environ["RANK"] == "1":
            raise ValueError("only here")
        return model(batch[0]).square().mean()

    return Recipe(
        model=lambda: torch.nn.Linear(4, 4),
        data=lambda: TensorDataset(torch.randn(64, 4)),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        micro_batch_size=4,
        global_batch_tokens=8,
        max_steps=100_000,
    )
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "slow.py").write_text(RECIPE)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train = ["-m", "surefoot", "train", "slow.py", "--no-plan", "--dir", "run", *words]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "999"}
    settings.pop("SUREFOOT_RAISE", None)
    return subprocess.Popen([*launcher, *train], cwd=folder, env=settings, stderr=subprocess.PIPE, text=True)


def ranks_of(process: subprocess.Popen[str]) -> dict[str, int]:
    """The processes of the ranks."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    settings = {int(child): Path(f"/proc/{child}/environ").read_text().split("\0") for child in children}
    return {each: child for child, found in settings.items() for each in found if each.startswith("RANK=")}


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the processes of ranks in /proc")
@pytest.mark.parametrize(("layout", "killed"), [("dp_replicate=2", 1), ("dp_shard=2", 0)])
def test_a_killed_rank_is_named_by_the_other(layout, killed, tmp_path):
    process = started(tmp_path, layout)
    log = tmp_path / "run" / "log.jsonl"
    until(lambda: log.exists() and log.stat().st_size, process=process)
    os.kill(ranks_of(process)[f"RANK={killed}"], signal.SIGKILL)
    told = process.communicate(timeout=120)[1]
    assert f"rank {killed} was lost in step " in told, told
    assert "bug in surefoot" not in told
    assert "Your code" not in told
    run = read_run(tmp_path / "run")
    assert run.failures == 0  # any number of kills may be survived
    if killed != 0:
        assert run.reason.startswith(f"RankLost: rank {killed} was lost in step ")


def test_a_rank_that_raises_is_named_with_its_error(tmp_path):
    process = started(tmp_path, "raises=true")
    told = process.communicate(timeout=240)[1]
    assert "Your code raised this while surefoot computed the recipe's loss: loss(model, batch) on rank 1" in told, told
    assert "rank 1 ended in step 1 with ValueError: only here" in told
    assert read_run(tmp_path / "run").failures == 1
    assert "bug in surefoot" not in told
