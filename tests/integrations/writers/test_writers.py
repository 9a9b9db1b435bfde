"""Writers: the real packages, offline, hear what the log holds; none is imported unless asked for; none stops a run."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot
from surefoot.errors import MissingPackage, RunError
from surefoot.integrations.writers import NAMES, Writers, numbers_of, open_writers
from surefoot.records.log import LogRow
from surefoot.records.run import Run
from tests.imported import CLI, imported_by

ROW = LogRow(3, 1.5, 2.0, 1.0, 1e-3, 64, (1, 2), "d", True, 0.5, 0.1)


def train_with(tool: str, folder: Path) -> list[LogRow]:
    """The rows of a run that told a tool, in a process of its own: these packages change global state."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip("pip install tensorboard wandb mlflow")
    offline = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    words = ["train", "sentiment", "samples=64", "max_steps=4", "--run", "run", "--log", tool, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", *words],
        cwd=folder,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "gets no more rows" not in done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    rows = surefoot.read_run(folder / "run").rows()
    assert len(rows) == 4
    return rows


def test_tensorboard_reads_back_what_the_log_holds(tmp_path):
    rows = train_with("tensorboard", tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(numbers_of(rows[0]))
    for name in numbers_of(rows[0]):
        assert [(each.step, each.value) for each in events.Scalars(name)] == [
            (row.step, pytest.approx(numbers_of(row)[name], rel=1e-6)) for row in rows
        ]
    assert events.Tags()["tensors"] == ["run/text_summary"]


def test_mlflow_keeps_what_the_log_holds(tmp_path):
    rows = train_with("mlflow", tmp_path)
    kept = sqlite3.connect(tmp_path / "mlflow.db")
    metrics = kept.execute("select step, key, value from metrics").fetchall()
    assert sorted(metrics) == sorted((row.step, name, value) for row in rows for name, value in numbers_of(row).items())
    assert kept.execute("select name, status from runs").fetchall() == [("run", "FINISHED")]
    assert ("recipe", "sentiment") in kept.execute("select key, value from params").fetchall()
    kept.close()


def test_wandb_keeps_what_the_log_holds(tmp_path):
    rows = train_with("wandb", tmp_path)
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    kept = file.read_bytes()
    for row in rows:
        assert repr(row.loss).encode() in kept
    assert b"sentiment" in kept


def test_every_number_of_a_row_is_told_and_what_is_none_is_left_out():
    told = {"loss": 1.5, "grad_norm": 2, "clipped_norm": 1, "lr": 1e-3, "tokens": 64, "seconds": 0.5}
    assert numbers_of(ROW) == {**told, "data_seconds": 0.1, "updated": 1, "attempt": 0}
    assert numbers_of(dataclasses.replace(ROW, evaluation_loss=2.5))["evaluation_loss"] == 2.5


class Told:
    """A writer that keeps what it is told, and fails where it is asked to."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.calls = failing, []

    def start(self, run: Run) -> None:
        self._hear("start")

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self._hear(f"write {step}")

    def end(self, *, finished: bool) -> None:
        self._hear(f"end {'finished' if finished else 'failed'}")

    def _hear(self, call: str) -> None:
        self.calls.append(call)
        if self.failing and call.startswith(self.failing):
            raise OSError("no space left")


@pytest.mark.parametrize(
    ("failing", "heard"),
    [
        ("start", ["start"]),
        ("write 2", ["start", "write 1", "write 2"]),
        ("end", ["start", "write 1", "write 2", "write 3", "end finished"]),
    ],
)
def test_a_writer_that_fails_is_warned_about_once_and_the_run_goes_on(failing, heard, small_recipe, tmp_path):
    bad, good = Told(failing), Told()
    with (
        pytest.warns(
            UserWarning, match="bad failed and gets no more rows; the run continues: OSError: no space left"
        ) as seen,
        Writers({"bad": bad, "good": good}) as writers,
    ):
        run = surefoot.train(small_recipe("regression", "max_steps=3"), path=str(tmp_path / "run"), tell=writers)
    assert run.status == "finished"
    assert len(seen) == 1
    assert bad.calls == heard
    assert good.calls == ["start", "write 1", "write 2", "write 3", "end finished"]


def test_writers_hear_that_a_run_failed():
    told, unheard = Told(), Told()
    run = Run("run", "gpt", "", "gpt", {}, "running", 10, "cpu", "2.13.0")
    with contextlib.suppress(ArithmeticError), Writers({"told": told}) as writers:
        writers(run, ROW)
        raise ArithmeticError
    assert told.calls == ["start", "write 3", "end failed"]
    with Writers({"unheard": unheard}):
        pass
    assert unheard.calls == []


def test_an_unknown_writer_and_a_missing_package_are_one_clear_error(monkeypatch):
    with pytest.raises(RunError, match="no writer is called 'nothing'; known: tensorboard, wandb, mlflow"):
        open_writers(["nothing"])
    for name in NAMES:
        monkeypatch.delitem(sys.modules, f"surefoot.integrations.writers.{name}", raising=False)
        monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
        with pytest.raises(MissingPackage, match=f"--log {name} needs {name}: pip install {name}"):
            open_writers([name])


def test_a_run_that_tells_no_tool_imports_none(tmp_path):
    argv = ["surefoot", "train", "regression", "samples=64", "max_steps=1", "--run", str(tmp_path / "run")]
    modules = imported_by(CLI.format(argv=argv))
    assert "surefoot.integrations.writers" in modules
    assert not modules & {"tensorboard", "wandb", "mlflow", "torch.utils.tensorboard", "matplotlib"}
