"""Asked to stop, or killed: real processes, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import surefoot
from surefoot.checkpoint.store import Checkpoints
from tests.waiting import until

pytestmark = pytest.mark.sweep

WORDS = ["gpt", "layers=1", "width=32", "heads=2", "context=32", "micro_batch_size=4", "global_batch_tokens=256"]


class Trainer:
    """`surefoot train` in a process of its own."""

    def __init__(self, run: Path, *words: str) -> None:
        command = [sys.executable, "-m", "surefoot", "train", *WORDS, *words, "--run", str(run)]
        self.log, self.said = run / "log.jsonl", run.with_suffix(".out")
        with self.said.open("w") as said:
            settings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
            self.process = subprocess.Popen(command, env=settings, stdout=said, stderr=said)

    def after(self, steps: int) -> "Trainer":
        """Waits for so many rows in the log."""

        def logged() -> bool:
            return self.log.exists() and self.log.read_text().count("\n") >= steps

        until(logged, process=self.process, output=self.said)
        return self

    def end(self, asked: signal.Signals | None = None) -> int:
        """The exit code, after a signal if one is given."""
        if asked is not None:
            self.process.send_signal(asked)
        return self.process.wait(120)


@pytest.fixture
def start():
    trainers = []

    def begin(run: Path, *words: str) -> Trainer:
        trainers.append(Trainer(run, *words))
        return trainers[-1]

    yield begin
    for trainer in trainers:
        trainer.process.kill()
        trainer.process.wait()


@pytest.mark.sweep
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_granted_after_the_step_saved(asked, start, tmp_path):
    trainer = start(tmp_path / "run", "max_steps=100000", "save_every=none").after(5)
    assert trainer.end(asked) == 75
    run = surefoot.read_run(tmp_path / "run")
    assert run.status == "interrupted"
    assert f"stopped by {asked.name} after step {run.steps}" in trainer.said.read_text()
    assert [path.name for path in run.checkpoints.glob("step-*")] == [f"step-{run.steps:09}"]
    assert run.steps == run.rows()[-1].step


def test_stopped_and_started_it_ends_as_if_it_had_been_left_alone(start, tmp_path):
    assert start(tmp_path / "alone", "max_steps=300").end() == 0
    assert start(tmp_path / "run", "max_steps=300", "save_every=7").after(10).end(signal.SIGTERM) == 75
    assert start(tmp_path / "run", "max_steps=300", "save_every=7").end() == 0
    alone, run = surefoot.read_run(tmp_path / "alone"), surefoot.read_run(tmp_path / "run")
    assert [row.loss for row in run.rows()] == [row.loss for row in alone.rows()]
    assert run.weights.read_bytes() == alone.weights.read_bytes()


def test_a_second_trainer_is_refused_and_the_lock_of_a_dead_one_is_not_kept(start, tmp_path):
    words = ("max_steps=100000", "save_every=2")
    first = start(tmp_path / "run", *words).after(3)
    second = start(tmp_path / "run", *words)
    said = second.said.with_suffix(".second")
    os.rename(second.said, said)
    assert second.end() == 2
    assert f"is in use by process {first.process.pid}" in said.read_text()
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    taken = len(first.log.read_text().splitlines())
    assert start(tmp_path / "run", *words).after(taken + 2).end(signal.SIGTERM) == 75
    assert json.loads((tmp_path / "run" / "run.json").read_text())["starts"] == 2


def test_workers_do_not_outlive_a_killed_trainer(start, tmp_path):
    process = start(tmp_path / "run", "max_steps=100000", "workers=2").after(2).process
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.kill()
    process.wait()
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_two_interrupts_leave_nothing_torn(start, tmp_path):
    words = ("max_steps=60", "save_every=1")
    trainer = start(tmp_path / "run", *words).after(3)
    trainer.process.send_signal(signal.SIGINT)
    time.sleep(0.02)  # time itself: the second comes while the first is seen to
    assert trainer.end(signal.SIGINT) != 0
    run = surefoot.read_run(tmp_path / "run")
    assert run.status == "interrupted"
    Checkpoints(run.checkpoints).newest()
    assert not Checkpoints(run.checkpoints).rejected
    assert start(tmp_path / "run", *words).end() == 0


GROWS = """
import os, resource, torch
from torch.utils.data import TensorDataset
from surefoot import Recipe

kept = []

def loss(model, batch):
    if "LIMIT" in os.environ:
        kept.append(torch.ones(16 << 20))  # 64 MiB at every step, never given back
    return model(batch[0]).square().sum(), len(batch[0])

def grows() -> Recipe:
    if "LIMIT" in os.environ:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    return Recipe(model=lambda: torch.nn.Linear(4, 1), data=lambda: TensorDataset(torch.ones(64, 4)), loss=loss,
                  optimizer=lambda p: torch.optim.AdamW(p), max_steps=200, save_every=2)
"""


def test_out_of_memory_ends_the_run_with_its_last_checkpoint(tmp_path):
    (tmp_path / "grows.py").write_text(GROWS)
    command = [sys.executable, "-m", "surefoot", "train", str(tmp_path / "grows.py"), "--run", str(tmp_path / "run")]
    done = subprocess.run(command, env={**os.environ, "LIMIT": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    run = surefoot.read_run(tmp_path / "run")
    assert run.status == "failed"
    assert re.search("memory", run.reason, re.IGNORECASE)
    assert Checkpoints(run.checkpoints).newest().step >= run.rows()[-1].step - 3
    assert subprocess.run(command, env=os.environ, timeout=120, capture_output=True).returncode == 0
    assert surefoot.read_run(tmp_path / "run").steps == 200
