"""Callbacks for Lightning, Hugging Face's Trainer and Accelerate keep what `surefoot watch --run` keeps."""

import importlib
import importlib.util
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot
from surefoot.errors import MissingPackage
from surefoot.integrations.booking import Booking
from surefoot.records.watched import read_watched
from surefoot.reports.gather import report_of
from surefoot.watch import watch_call

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
STEPS = 5


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}


class Reviews(Dataset[dict[str, torch.Tensor]]):
    """An array, not a tensor: a callback begins when the data set exists, and does not count its memory."""

    def __init__(self) -> None:
        self.scores = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        scores = torch.from_numpy(self.scores[index])
        return {"x": scores, "labels": (scores.sum() > 0).long()}


def by_lightning(folder: Path, run: Path | None, *, bug: str = "", **options: Any) -> list[float]:
    """Trains, with the callback if there is a run directory, and returns the losses."""
    import lightning.pytorch as pl

    from surefoot.integrations.lightning import SurefootCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Module(pl.LightningModule):
        def __init__(self, width: int = 16) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = Model()

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            if bug == "raises" and number == 2:
                raise ValueError("the disk is full")
            loss = self.model(**batch)["loss"]
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.0 if bug == "zero" else 1e-2)

    callbacks = [] if run is None else [SurefootCallback(run, **options)]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_steps=STEPS, accelerator="cpu", callbacks=callbacks, enable_model_summary=False, **quiet)
    trainer.fit(Module(), DataLoader(Reviews(), batch_size=8, shuffle=True))
    return losses


def by_transformers(folder: Path, run: Path | None, *, bug: str = "", **options: Any) -> list[float]:
    """Trains, with the callback if there is a run directory, and returns the losses."""
    from transformers import Trainer, TrainingArguments

    from surefoot.integrations.transformers import SurefootCallback

    losses: list[float] = []

    class Noted(Model):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            found = super().forward(x, labels)
            losses.append(found["loss"].item())
            return found

    arguments = TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=8, learning_rate=0.0 if bug == "zero" else 1e-2,
        logging_steps=2, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False, max_grad_norm=0.0,
    )  # fmt: skip
    callbacks = [] if run is None else [SurefootCallback(run, **options)]
    Trainer(Noted(), arguments, train_dataset=Reviews(), callbacks=callbacks).train()
    return losses


def by_accelerate(folder: Path, run: Path | None, *, bug: str = "", **options: Any) -> list[float]:
    """Trains, with the tracker if there is a run directory, and returns the losses."""
    from accelerate import Accelerator

    from surefoot.integrations.accelerate import SurefootTracker

    accelerator = Accelerator(cpu=True, log_with=None if run is None else SurefootTracker(run, **options))
    accelerator.init_trackers("reviews", config={"width": 16})
    model, losses = Model(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0 if bug == "zero" else 1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Reviews(), batch_size=8, shuffle=True))
    for step, batch in zip(range(STEPS), loader, strict=False):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        accelerator.log({"loss": loss.item()}, step=step)
    accelerator.end_training()
    return losses


TRAINED: dict[str, Callable[..., list[float]]] = {
    "lightning": by_lightning,
    "transformers": by_transformers,
    "accelerate": by_accelerate,
}


@pytest.fixture(params=TRAINED)
def train(request: pytest.FixtureRequest, tmp_path: Path):
    """Trains with one of the libraries from the same seed."""
    for library in {request.param, "accelerate"} - ({"accelerate"} if request.param == "lightning" else set()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"pip install {library}")

    def run(folder: Path | None = None, **given: Any) -> list[float]:
        torch.manual_seed(0)
        return TRAINED[request.param](tmp_path / "theirs", folder, **given)

    return run


def test_a_training_is_kept_as_a_watched_script_is(train, tmp_path, capsys):
    bare = train()
    kept = train(tmp_path / "kept")
    watched = watch_call(train, name="train.py")
    run, seen = surefoot.read_run(tmp_path / "kept"), read_watched(tmp_path / "kept")
    assert (run.status, run.steps, run.parameters) == ("finished", STEPS, 114)
    assert [row.loss for row in run.rows()] == kept[:STEPS] == bare  # probes run copies of the model afterwards
    assert seen.steady.tally == watched.steady.tally
    assert seen.findings.findings == watched.findings.findings == ()
    sheet = report_of(tmp_path / "kept").sheets[0]
    assert {entry.account for entry in sheet.ledger.entries} >= {"flops/forward", "memory/optimizer", "step/seconds"}
    assert f"surefoot report {tmp_path}" in capsys.readouterr().out.replace("\n", "")


def test_a_silent_bug_is_found_and_printed(train, tmp_path, capsys):
    train(tmp_path / "kept", bug="zero")
    assert [each.check for each in report_of(tmp_path / "kept").sheets[0].findings.errors] == ["zero-learning-rate"]
    assert "zero-learning-rate" in capsys.readouterr().out


def test_a_check_can_be_silenced_and_a_second_training_has_its_own_directory(train, tmp_path):
    for _ in range(2):
        train(tmp_path / "kept", bug="zero", allow=["zero-learning-rate"])
    for folder in ("kept", "kept-2"):
        assert surefoot.read_run(tmp_path / folder).status == "finished"
        assert report_of(tmp_path / folder).sheets[0].findings.errors == ()


def test_a_fit_that_raises_leaves_what_it_did(tmp_path):
    pytest.importorskip("lightning")
    with pytest.raises(ValueError, match="the disk is full"):
        by_lightning(tmp_path, tmp_path / "kept", bug="raises")
    run = surefoot.read_run(tmp_path / "kept")
    assert (run.status, run.reason, len(run.rows())) == ("failed", "ValueError: the disk is full", 2)
    assert run.settings == {"width": 16}


def loop(*, raises: bool = False) -> None:
    """A training that no library drives."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Reviews(), batch_size=8):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()


def test_a_plan_stands_beside_what_was_measured(tmp_path):
    recipe = surefoot.Recipe(
        model=Model,
        data=Reviews,
        loss=lambda model, batch: model(**batch)["loss"],
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=8,
        max_steps=8,
    )
    booking = Booking(tmp_path / "kept", plan=surefoot.plan(recipe))
    booking.begin()
    loop()
    booking.end()
    entries = {entry.account: entry for entry in report_of(tmp_path / "kept").sheets[0].ledger.entries}
    for account in ("flops/forward", "flops/backward", "memory/parameters", "memory/gradients", "run/steps"):
        assert entries[account].predicted == entries[account].measured


def test_settings_and_logged_values_are_kept(tmp_path):
    booking = Booking(tmp_path / "kept")
    booking.log({"loss": 1.0})  # before a training there is nowhere to keep it
    booking.begin()
    booking.keep_settings({"lr": 0.1, "data": Path("books")})
    booking.log({"accuracy": 0.5, "where": Path("here")}, step=3)
    booking.end()
    assert surefoot.read_run(tmp_path / "kept").settings == {"lr": 0.1, "data": "books"}
    (row,) = (tmp_path / "kept" / "logged.jsonl").read_text().splitlines()
    assert json.loads(row) == {"step": 3, "accuracy": 0.5, "where": "here"}


def test_a_program_that_dies_leaves_a_failed_run(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_integrations import Booking, loop
Booking("kept").begin()
loop()
raise ValueError("the disk is full")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "ValueError: the disk is full" in done.stderr
    run = surefoot.read_run(tmp_path / "kept")
    assert (run.status, run.reason, run.steps) == ("failed", "ValueError: the disk is full", 8)


@pytest.mark.parametrize("name", TRAINED)
def test_a_missing_library_is_said_with_the_command_that_installs_it(name: str, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"surefoot.integrations.{name}", raising=False)
    for submodule in ("lightning.pytorch", "accelerate.tracking"):
        monkeypatch.setitem(sys.modules, submodule, None)
    with pytest.raises(MissingPackage, match=f"pip install '?{name}"):
        importlib.import_module(f"surefoot.integrations.{name}")
