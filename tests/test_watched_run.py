"""A watched script leaves a run directory like any other, and is booked as a profile of the same model is."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.errors import RunError
from surefoot.records.run import read_run
from surefoot.records.watched import read_watched
from surefoot.reports.console import as_text
from surefoot.reports.gather import report_of
from surefoot.reports.report import report_text
from surefoot.watch import watch_script

BENCH = Path(__file__).parent.parent / "bench"
SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 2, (16,)))
    loss.backward()
    optimizer.step()
    with open({losses!r}, "a") as losses:
        losses.write(loss.item().hex() + "\\n")
    if step == {fails_after}:
        raise ValueError("the disk is full")
"""


@pytest.fixture
def script(tmp_path: Path):
    """A function that writes a script, which writes its losses, and gives both files."""

    def write(fails_after: int = -1) -> tuple[Path, Path]:
        file, losses = tmp_path / "train.py", tmp_path / "losses"
        file.write_text(SCRIPT.format(losses=str(losses), fails_after=fails_after))
        return file, losses

    return write


def test_a_watched_script_leaves_a_run_that_a_report_reads(script, tmp_path):
    file, losses = script()
    watch_script(str(file), keep=tmp_path / "seen")
    run = read_run(tmp_path / "seen")
    assert (run.status, run.steps, run.parameters, run.device, run.tokens) == ("finished", 6, 18, "cpu", 96)
    assert [row.loss.hex() for row in run.rows()] == losses.read_text().split()
    assert run.source.read_text() == file.read_text()
    report = report_of(tmp_path / "seen")
    sheet = report.sheets[0]
    assert sheet.findings.findings == ()
    assert sheet.findings.checks
    assert {entry.predicted for entry in sheet.ledger.entries} == {None}
    assert {entry.account for entry in sheet.ledger.entries} >= {"flops/forward", "run/steps", "step/seconds"}
    text = as_text(report_text(report, [run]))
    assert "a watched script" in text
    assert "not predicted" not in text


def test_another_run_is_not_written_over(script, tmp_path):
    file, _ = script()
    watch_script(str(file), steps=1, keep=tmp_path / "seen")
    with pytest.raises(RunError, match="already holds a run"):
        watch_script(str(file), keep=tmp_path / "seen")


def test_a_script_that_fails_leaves_what_it_did(script, tmp_path):
    file, _ = script(fails_after=2)
    with pytest.raises(ValueError, match="the disk is full"):
        watch_script(str(file), keep=tmp_path / "seen")
    run = read_run(tmp_path / "seen")
    assert (run.status, run.reason, len(run.rows())) == ("failed", "ValueError: the disk is full", 3)
    assert report_of(tmp_path / "seen").answer == f"{file.name} failed after 3 steps: ValueError: the disk is full."


def booked_otherwise(name: str, folder: Path) -> dict[str, tuple[float, float]]:
    """What was booked of a script of the bench otherwise than a profile books it."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if name == "two_ranks" else []
    watch = ["-m", "surefoot", "watch", str(BENCH / "watched" / f"{name}.py"), "--dir", str(folder / "seen"), "--json"]
    paths = [str(BENCH), *(path for path in sys.path if (Path(path) / "surefoot").is_dir())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
    words = [sys.executable, *launcher, *watch, "--", str(folder / "notes"), "4"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    seen = read_watched(folder / "seen")
    assert seen is not None, done.stderr[-3000:]
    from watched.tallies import differences

    return differences(name, seen.steady)


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain", "nano", "by_lightning", "by_hf_trainer", "by_accelerate", "two_ranks"])
def test_a_script_is_booked_as_a_profile_of_its_model_is(name: str, tmp_path, monkeypatch):
    needs = {"by_lightning": "lightning", "by_hf_trainer": "accelerate", "by_accelerate": "accelerate"}
    if importlib.util.find_spec(needs.get(name, "torch")) is None:
        pytest.skip(f"needs {needs[name]}: pip install {needs[name]}")
    monkeypatch.syspath_prepend(BENCH)
    assert booked_otherwise(name, tmp_path) == {}
