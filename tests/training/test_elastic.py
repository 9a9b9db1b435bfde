"""Ranks that die, stop, lag or compute wrongly: real torchrun, real processes, real signals."""

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd.graph import _engine_run_backward

import surefoot
from surefoot.checkpoint.store import DRAFT, Checkpoints
from surefoot.events.rank_notes import told
from surefoot.training.guards.beats import Beat, place_of, waiting
from surefoot.training.guards.fingerprint import Fingerprints, differing, replicas
from surefoot.training.guards.stragglers import STEPS, Stragglers
from surefoot.training.resume import FAILURES
from tests.waiting import until

pytestmark = pytest.mark.sweep

RECIPE = """
import dataclasses, os, time, torch
from surefoot import Recipe, load_recipe
from surefoot.training import monitor
from surefoot.checkpoint.writer import _Writer

monitor.PATIENCE_SECONDS = float(os.environ.get("PATIENCE", "60"))
RANK = int(os.environ.get("RANK", "0"))
WORDS = ["layers=1", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=256"]

def small(max_steps: int = 40, nap: float = 0.0, late: float = 0.0, flip_at: int = 0, fails: bool = False) -> Recipe:
    write = _Writer.write_data
    _Writer.write_data = lambda *given: (time.sleep(late * RANK), write(*given))[1]
    recipe = load_recipe("gpt", [*WORDS, f"max_steps={max_steps}", "save_every=4"])
    loss, calls = recipe.loss, []

    def disturbed(model, batch):
        calls.append(1)
        if RANK == 1:
            time.sleep(nap)
            if flip_at and len(calls) == 2 * flip_at:  # two micro-batches to a step
                bits = next(model.parameters()).detach().view(torch.int32)
                bits.view(-1)[7] ^= 1 << 20
        if fails:
            raise ValueError("this step fails every time")
        return loss(model, batch)

    return dataclasses.replace(recipe, loss=disturbed)
"""


class Job:
    """torchrun with so many ranks; its output goes to a file."""

    def __init__(self, folder: Path, *words: str, ranks: int = 2, restarts: int = 20, patience: float = 60) -> None:
        (folder / "small.py").write_text(RECIPE)
        self.run, self.said = folder / "run", folder / "said"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
        again = ["--max-restarts", str(restarts), "--monitor-interval", "0.1"]
        train = ["-m", "surefoot", "train", str(folder / "small.py"), *words, "--dir", str(self.run)]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "PATIENCE": str(patience), "COLUMNS": "200"}
        with self.said.open("w") as said:
            command = [*launcher, *again, *train]
            self.process = subprocess.Popen(command, env=settings, stdout=said, stderr=said, start_new_session=True)

    def steps(self) -> int:
        log = self.run / "log.jsonl"
        return log.read_text().count("\n") if log.exists() else 0

    def after(self, steps: int) -> "Job":
        until(lambda: self.steps() >= steps, process=self.process, output=self.said)
        return self

    def half_saved(self) -> "Job":
        """Until rank 0 has written its share of a checkpoint, and rank 1 has not."""
        shares = f"checkpoints/{DRAFT}*/__0_*"
        until(lambda: any(self.run.glob(shares)), process=self.process, output=self.said)
        return self

    def ranks(self) -> list[int]:
        """The processes that train, by rank."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = {}
        for child in map(int, children):
            try:
                place = re.search(rb"\0RANK=(\d+)\0", Path(f"/proc/{child}/environ").read_bytes())
            except OSError:
                continue
            if place:
                found[int(place[1])] = child
        return [found[rank] for rank in sorted(found)]

    def workers(self) -> list[int]:
        """The processes that read data for rank 1; whichever thread has started them, they are its children."""
        tasks = Path(f"/proc/{self.ranks()[1]}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def end(self) -> int:
        return self.process.wait(300)


@pytest.fixture
def start(tmp_path):
    jobs = []

    def begin(*words: str, folder: str = "job", **how) -> Job:
        (tmp_path / folder).mkdir()
        jobs.append(Job(tmp_path / folder, *words, **how))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            for rank in job.ranks():
                os.kill(rank, signal.SIGKILL)
            job.process.wait()


def finding_of(job: Job) -> dict:
    (finding,) = json.loads((job.run / "findings.json").read_text())["findings"]
    return finding


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["dp_replicate=2", "dp_shard=2"])
def test_a_rank_that_is_killed_costs_a_restart_and_not_a_bit(layout, start):
    whole = start(layout, folder="whole")
    assert whole.end() == 0, whole.said.read_text()
    job, draw = start(layout, folder="killed"), random.Random(0)
    for _ in range(2):
        job.after(job.steps() + draw.randrange(3, 9))
        ranks = job.ranks()
        os.kill(ranks[draw.randrange(len(ranks))], signal.SIGKILL)
    assert job.end() == 0, job.said.read_text()
    expected, found = surefoot.read_run(whole.run), surefoot.read_run(job.run)
    assert found.starts >= 2
    assert [row.loss for row in found.rows()] == [row.loss for row in expected.rows()]
    assert [row.samples for row in found.rows()] == [row.samples for row in expected.rows()]
    assert found.weights.read_bytes() == expected.weights.read_bytes()


@pytest.mark.sweep
def test_a_rank_that_is_killed_before_it_has_written_its_share_leaves_no_checkpoint_of_two_steps(start):
    whole = start("dp_shard=2", "max_steps=24", folder="whole")
    job = start("dp_shard=2", "max_steps=24", "late=0.3", folder="killed")
    for steps in (6, 14):
        os.kill(job.after(steps).half_saved().ranks()[1], signal.SIGKILL)
    assert (whole.end(), job.end()) == (0, 0), job.said.read_text()
    expected, found = surefoot.read_run(whole.run), surefoot.read_run(job.run)
    assert found.starts == 3
    assert [row.loss for row in found.rows()] == [row.loss for row in expected.rows()]
    assert found.weights.read_bytes() == expected.weights.read_bytes()


@pytest.mark.sweep
def test_a_data_worker_that_is_killed_ends_its_rank_aloud_and_costs_no_bit(start):
    whole = start("dp_replicate=2", "max_steps=24", folder="whole")
    job = start("dp_replicate=2", "max_steps=24", "workers=1", folder="killed").after(5)
    os.kill(job.workers()[0], signal.SIGKILL)
    assert (whole.end(), job.end()) == (0, 0), job.said.read_text()
    assert re.search(r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)", job.said.read_text())
    expected, found = surefoot.read_run(whole.run), surefoot.read_run(job.run)
    assert found.starts == 2
    assert [(row.loss, row.samples) for row in found.rows()] == [(row.loss, row.samples) for row in expected.rows()]
    assert found.weights.read_bytes() == expected.weights.read_bytes()


def test_a_stopped_rank_is_named_and_the_run_goes_on_without_it(start):
    job = start("dp_replicate=2", "max_steps=60", patience=3)
    job.after(10)
    began = time.monotonic()
    os.kill(job.ranks()[1], signal.SIGSTOP)
    assert job.end() == 0, job.said.read_text()
    assert time.monotonic() - began < 280  # of 1,800 s that a process group waits
    finding = finding_of(job)
    assert finding["check"] == "hanging-rank"
    assert re.search(
        r"rank 1 has not responded since step \d+(, last seen at \S+)?; the others wait in", finding["seen"]
    )
    events = surefoot.read_run(job.run).happened()
    assert {"slow-step", "hanging-rank", "resumed"} <= {event.kind for event in events}
    assert surefoot.read_run(job.run).steps == 60


def test_a_slow_rank_is_named_and_left_alone(start):
    job = start("dp_replicate=2", "nap=0.15", f"max_steps={STEPS + 4}", "save_every=none")
    assert job.end() == 0, job.said.read_text()
    run = surefoot.read_run(job.run)
    (event,) = [event for event in run.happened() if event.kind == "straggler"]
    assert event.text.startswith("rank 1 computes ")
    assert run.starts == 1


def test_a_flipped_bit_of_one_replica_is_named_with_step_rank_and_tensor(start):
    job = start("dp_replicate=2", "flip_at=10", "max_steps=30", restarts=0)
    assert job.end() != 0
    finding = finding_of(job)
    assert finding["check"] == "replicas-differ"
    name = next(name for name, _ in surefoot.load_recipe("gpt", ["layers=1"]).model().named_parameters())
    assert f"`{name}`" in finding["seen"]
    step = int(re.match(r"step (\d+), rank 1;", finding["where"])[1])
    assert 10 <= step <= 12  # a save compares first


@pytest.mark.sweep
def test_a_run_that_fails_at_every_start_is_not_started_forever(start):
    job = start("fails=true", "dp_replicate=2", restarts=FAILURES + 1)
    assert job.end() != 0
    run = surefoot.read_run(job.run)
    assert run.status == "failed"
    assert "this step fails every time" in run.reason
    assert run.starts == FAILURES
    assert "this step fails every time" in " ".join(job.said.read_text().split())


# ------------------------------------------------------------------------------------------- what the guards conclude


def test_who_is_waited_for():
    ranks = [Beat(5, 9, "all_reduce"), Beat(5, 9, "all_reduce"), Beat(5, 9, "")]
    later = [Beat(8, 9, "all_reduce"), Beat(5, 9, "all_reduce"), Beat(8, 9, "")]
    assert waiting(ranks, later) == ("rank 1 has not responded since step 9; the others wait in all_reduce", 0)
    everyone = [beat._replace(number=8) for beat in ranks]
    assert waiting(ranks, everyone) == ("rank 2 is in no collective since step 9; the others wait in all_reduce", 0)
    stands = [ranks[0], ranks[1], Beat(5, 9, "", " at data.py:12")]
    assert waiting(stands, [*everyone[:2], Beat(8, 9, "", " at data.py:12")]).text == (
        "rank 2 is in no collective since step 9, last seen at data.py:12; the others wait in all_reduce"
    )
    stopped = [ranks[0], *everyone[1:]]
    assert waiting(ranks, stopped).teller == 1
    alike = [Beat(8, 9, "all_reduce")] * 3
    assert waiting([Beat(5, 9, "all_reduce")] * 3, alike).text == "all ranks wait in all_reduce"
    at_work = [Beat(5, 9, "")] * 2
    assert waiting(at_work, [Beat(8, 9, ""), at_work[1]]).text == "rank 1 has not responded since step 9"
    assert waiting(at_work, [Beat(8, 9, "")] * 2).text == ""


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (torch.distributed.all_reduce.__wrapped__, "all_reduce"),
        (_engine_run_backward, "backward"),
        (Checkpoints._finish, "a checkpoint"),
        (told, "an exchange of notes"),
        (surefoot.read_run, ""),
    ],
)
def test_where_a_rank_waits_is_told_by_its_functions(function, place):
    inside = SimpleNamespace(f_code=function.__code__, f_back=None)
    assert place_of(SimpleNamespace(f_code=test_who_is_waited_for.__code__, f_back=inside)) == place


def test_replicas_are_those_that_hold_the_same_shard():
    assert replicas(2, 8) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert differing([[1, 1, 1], [2, 2, 3]], [[0, 1, 2]]) == (2, 1)
    assert differing([[1, 2, 1, 2]], replicas(2, 4)) is None


def test_fingerprints_come_as_often_as_their_share_of_the_time_allows(monkeypatch):
    """A comparison of 8 ms to steps of 100 ms: one in 27 steps is 0.3%."""
    clock = itertools.count(step=0.008)
    monkeypatch.setattr("surefoot.training.guards.fingerprint.time.perf_counter", lambda: next(clock))
    world = SimpleNamespace(gather=lambda numbers: [numbers, numbers])
    layout = SimpleNamespace(dp_replicate=2, ranks=2)
    step = SimpleNamespace(layout=layout, world=world, model=torch.nn.Linear(2, 2), number=0)
    fingerprints, taken = Fingerprints(step), []
    for step.number in range(1, 101):
        if fingerprints.due(0.1):
            assert fingerprints.compare() is None
            taken.append(step.number)
    assert taken == [1, 2, 29, 56, 83]


def test_a_rank_is_slow_if_it_is_slow_again_and_again():
    once, always = Stragglers(), Stragglers()
    assert not any(once.see(1.0, [0.2, 0.9 if step == 3 else 0.2]) for step in range(3 * STEPS))
    said = [always.see(1.0, [0.2, 0.9]) for _ in range(STEPS)]
    assert said[-1].startswith("rank 1 computes 0.9 s in each step, the others 0.2 s")
    assert not any(said[:-1])
