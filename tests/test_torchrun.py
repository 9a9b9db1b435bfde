"""`torchrun -m surefoot train` and `profile`: one rank speaks for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot import read_run
from surefoot.costs.ledgers import ledger_of
from surefoot.records.plan import read_plan
from tests.ways.ranks import SMALL

pytestmark = pytest.mark.sweep


def torchrun(*words: str, command: str = "train") -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    typed = [*launcher, "-m", "surefoot", command, "gpt", *SMALL, *words]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(typed, capture_output=True, text=True, timeout=600, env=threads)


def test_one_rank_prints_and_writes_the_run(tmp_path):
    done = torchrun("max_steps=3", "--dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished after 3 steps") == 1
    assert (
        done.stdout.count("dp_shard=2: fsdp shards the model over 2 ranks") == 2
    )  # before the first step, and at the end
    assert [row.step for row in read_run(tmp_path / "run").rows()] == [1, 2, 3]
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"checkpoints", "lock", "log.jsonl", "model.safetensors", "plan.json", "recipe.py", "run.json"}
    shards = {path.name for path in (tmp_path / "run" / "checkpoints" / "step-000000003").iterdir()}
    assert {"__0_0.distcp", "__1_0.distcp", "MANIFEST"} <= shards
    assert planned_as_measured(tmp_path / "run") >= {"memory", "traffic", "collectives", "overlap", "checkpoint", "run"}


def planned_as_measured(run: Path) -> set[str]:
    """The first words of the ledger's accounts that have two sides; none of them differs."""
    plan = read_plan(run)
    assert (plan.ranks, plan.layout) == (2, read_run(run).layout)
    ledger = ledger_of(plan, run=read_run(run))
    assert ledger.disagreements == ()
    return {each.account.split("/")[0] for each in ledger.entries if each.agrees}


def test_replicas_are_planned_as_replicas(tmp_path):
    done = torchrun("max_steps=2", "dp_replicate=2", "--dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert planned_as_measured(tmp_path / "run") >= {"memory", "traffic", "collectives", "checkpoint", "run"}


def test_one_rank_says_what_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letter.txt").write_text("not a run")
    done = torchrun("--dir", str(tmp_path / "run"))
    assert done.returncode != 0
    assert " ".join(done.stderr.split()).count("is not empty and holds no run") == 1, done.stderr


def test_ranks_are_profiled_together_and_one_prints(tmp_path):
    done = torchrun("--steps", "1", "--json", "--dir", str(tmp_path / "run"), command="profile")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["plan"]["ranks"], found["profile"]["ranks"]) == (2, 2)
    seen = {each["account"]: (each["predicted"], each["measured"]) for each in found["ledger"]["entries"]}
    moved = {name: sides for name, sides in seen.items() if name.startswith(("traffic/", "collectives/", "memory/"))}
    assert {"traffic/all-gather", "traffic/reduce-scatter", "memory/parameters"} <= set(moved)
    assert all(planned == measured for planned, measured in moved.values()), moved
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"plan.json", "profile.json"}
    refused = torchrun("--measure", command="profile")
    assert refused.returncode != 0
    assert "--measure predicts the seconds of one process" in " ".join(refused.stderr.replace("│", " ").split())


SOME_TRAIN = """
import os, sys, torch
if os.environ["RANK"] in sys.argv:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("training", "ends_well"), [((), False), (("1",), True), (("0", "1"), True)])
def test_no_training_is_an_error_only_if_no_rank_trains(training: tuple[str, ...], ends_well: bool, tmp_path: Path):
    """torchrun ends all ranks if one fails: a rank that does not train must not stop those that do."""
    script = tmp_path / "some.py"
    script.write_text(SOME_TRAIN)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    typed = [*launcher, "-m", "surefoot", "watch", str(script), "--", *training]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(typed, capture_output=True, text=True, timeout=600, env=environment)
    assert (done.returncode == 0) == ends_well, done.stderr
    assert ("no training was seen" in " ".join(done.stdout.split())) == ("0" not in training)
    assert ends_well or "exitcode: 2" in " ".join(done.stderr.split())
