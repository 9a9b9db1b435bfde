"""A run whose process was killed: the report sees that nobody trains it, and says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.records.run import Run, read_run, write_run
from tests.waiting import until

RECIPE = """
import time
import torch
from surefoot import Recipe

def loss(model, batch):
    time.sleep(0.05)
    return model(batch[0]).square().mean()

def slow() -> Recipe:
    return Recipe(model=lambda: torch.nn.Linear(4, 2), data=lambda: torch.utils.data.TensorDataset(torch.rand(64, 4)),
                  loss=loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), micro_batch_size=4, max_steps=10_000,
                  save_every=3)
"""
SCRIPT = """
import time
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10_000):
    model(torch.rand(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
"""


def report(folder: Path) -> str:
    return " ".join(CliRunner().invoke(app, ["report", str(folder)], catch_exceptions=False).output.split())


@pytest.fixture
def training(tmp_path):
    """Starts a command that trains into `run`, and returns it after a few steps."""
    started = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "surefoot", *words, "--run", "run"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "200"}
        )
        started.append(process)
        log = tmp_path / "run" / "log.jsonl"
        until(lambda: log.exists() and len(log.read_bytes().splitlines()) >= 5, process=process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_killed_run_is_not_called_running_and_differs_from_no_plan(training, tmp_path):
    (tmp_path / "slow.py").write_text(RECIPE)
    process = training("train", "slow.py")
    assert "slow is running, after " in report(tmp_path / "run")
    process.kill()
    process.wait()
    saved, steps = read_run(tmp_path / "run").saved_step, len(read_run(tmp_path / "run").rows())
    text = report(tmp_path / "run")
    again = f"resumes it from step {saved}" if saved else "starts it again"
    assert text.startswith(
        f"slow stopped without a word after step {steps}; the same command {again}. Nothing to change"
    )
    assert "differs from its plan" not in text
    assert f"stopped after {steps} steps, {4 * steps} samples" in text


def test_a_killed_script_too(training, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = training("watch", "script.py")
    assert "script.py is running, after " in report(tmp_path / "run")
    process.kill()
    process.wait()
    steps = len(read_run(tmp_path / "run").rows())
    assert report(tmp_path / "run").startswith(f"script.py stopped without a word after step {steps}. Nothing")


def test_a_run_whose_process_nobody_can_see_is_called_running(tmp_path):
    write_run(Run(str(tmp_path), "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13"))
    assert report(tmp_path).startswith("gpt is running, after 0 steps; it has no plan to compare with.")


@pytest.mark.parametrize(("content", "state"), [("", "stopped without a word"), ("not JSON", "is running")])
def test_a_released_lock_is_told_from_a_damaged_one(tmp_path, content, state):
    write_run(Run(str(tmp_path), "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13"))
    (tmp_path / "lock").write_text(content)
    assert report(tmp_path).startswith(f"gpt {state}")


def test_the_lock_of_another_machine_is_asked_of_the_kernel(tmp_path):
    write_run(Run(str(tmp_path), "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13"))
    elsewhere = '{"pid": 1, "host": "elsewhere", "boot": "b", "namespace": "n", "started": "1", "since": "now"}\n'
    (tmp_path / "lock").write_text(elsewhere)
    assert report(tmp_path).startswith("gpt stopped without a word after step 0.")
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert report(tmp_path).startswith("gpt is running")
