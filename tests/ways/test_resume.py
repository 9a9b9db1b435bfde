"""Stopped at any step and started again, a run ends with the same bits as one that was left alone."""

import dataclasses
import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import surefoot
from surefoot.checkpoint.store import Checkpoints
from surefoot.errors import CheckpointError, NonFinite, RecipeError, ReplayError, RunError
from tests.resumed import NoisyReviews, StreamOfReviews, assert_same_bits, told, train_to

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "plain": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=False),
    "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2),
}


@pytest.mark.parametrize("data", [NoisyReviews, StreamOfReviews])
@pytest.mark.parametrize("workers", [0, 2])
def test_own_data_sets_with_workers_that_draw(data, workers: int, small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=7", "save_every=2"), data=data, workers=workers)
    recipe = dataclasses.replace(recipe, micro_batch_size=8, global_batch_tokens=16)
    assert_same_bits(recipe, tmp_path, 3, 5)


@pytest.mark.sweep
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer: str, small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=2")
    assert_same_bits(dataclasses.replace(recipe, optimizer=OPTIMIZERS[optimizer]), tmp_path, 3)


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true", "fp8", "fp8-rowwise"])
def test_every_precision_and_three_resumes(precision: str, small_recipe, tmp_path):
    recipe = small_recipe("gpt", "max_steps=8", "save_every=2", f"precision={precision}")
    assert_same_bits(recipe, tmp_path, 1, 3, 7)


def test_another_number_of_workers_and_another_interval_change_nothing(small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=6", "save_every=2"), data=NoisyReviews)
    alone = surefoot.train(recipe, path=str(tmp_path / "alone"))
    train_to(recipe, tmp_path / "parts", 1)
    other = dataclasses.replace(recipe, workers=1, save_every=3, keep_last=1)
    assert told(surefoot.train(other, path=str(tmp_path / "parts"))) == told(alone)


def test_looking_at_held_out_data_changes_nothing(small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=6"), evaluation=NoisyReviews)
    plain = surefoot.train(recipe, path=str(tmp_path / "plain"))
    looked = dataclasses.replace(recipe, evaluate_every=2, evaluation_batches=2)
    looking = surefoot.train(looked, path=str(tmp_path / "looking"))
    assert told(looking) == told(plain)
    assert [row.evaluation_loss is not None for row in looking.rows()] == [False, True] * 3
    assert looking.evaluation_loss == looking.rows()[-1].evaluation_loss
    with pytest.raises(RecipeError, match="no evaluation data"):
        surefoot.train(dataclasses.replace(looked, evaluation=None), path=str(tmp_path / "none"))


def test_a_finished_run_is_left_as_it_is(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=3")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.train(recipe, path=str(tmp_path / "run")) == run
    with pytest.raises(RunError, match="already holds a run"):
        surefoot.train(recipe, path=str(tmp_path / "run"), resume="never")


def test_a_step_that_comes_out_differently_stops_the_run(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=6", "save_every=2")
    train_to(recipe, tmp_path / "run", 3)
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_text().splitlines()
    row = json.loads(lines[2])
    lines[2] = json.dumps({**row, "loss": float(np.nextafter(np.float32(row["loss"]), np.float32(9)))})
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(ReplayError, match="step 3 was repeated and gave a different result: loss"):
        surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.train(recipe, path=str(tmp_path / "run"), accept_change=True).status == "finished"


def write_recipe(path: Path, body: str = "1.0", comment: str = "") -> None:
    path.write_text(
        f"""import torch
from surefoot import Recipe
from torch.utils.data import TensorDataset

def loss(model, batch):
    {comment}
    return (model(batch[0]) * {body}).square().sum(), len(batch[0])

def mine(lr: float = 0.1, max_steps: int = 4) -> Recipe:
    return Recipe(model=lambda: torch.nn.Linear(2, 1), data=lambda: TensorDataset(torch.ones(8, 2)), loss=loss,
                  optimizer=lambda p: torch.optim.SGD(p, lr=lr), max_steps=max_steps, save_every=1)
"""
    )


def test_a_changed_recipe_is_refused_unless_accepted(tmp_path):
    file, path = tmp_path / "mine.py", str(tmp_path / "run")
    write_recipe(file)
    train_to(surefoot.load_recipe(str(file)), tmp_path / "run", 1)
    write_recipe(file, comment="# a remark changes nothing")
    with pytest.raises(RunError, match=re.escape("lr was 0.1 and is 0.2")):
        surefoot.train(surefoot.load_recipe(str(file), ["lr=0.2"]), path=path)
    with pytest.raises(RunError, match="max_steps was 4 and is 9"):
        surefoot.train(surefoot.load_recipe(str(file), ["max_steps=9"]), path=path)
    write_recipe(file, body="2.0")
    with pytest.raises(RunError, match=r"the code in .*mine\.py has changed"):
        surefoot.train(surefoot.load_recipe(str(file)), path=path)
    run = surefoot.train(surefoot.load_recipe(str(file), ["max_steps=9"]), path=path, accept_change=True)
    assert (run.status, run.steps, run.attempt) == ("finished", 9, 1)
    assert [row.attempt for row in run.rows()] == [0] + [1] * 8


def test_a_global_batch_that_is_no_longer_set_is_named_with_its_value(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "global_batch_tokens=128")
    train_to(recipe, tmp_path / "run", 1)
    with pytest.raises(
        RunError,
        match=re.escape("was 128 and is None (set it to 128 to keep the batches of the run on any number of ranks)"),
    ):
        surefoot.train(dataclasses.replace(recipe, global_batch_tokens=None), path=str(tmp_path / "run"))


def test_other_data_is_refused(small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=4", "save_every=1"), target="", knobs={})
    train_to(recipe, tmp_path / "run", 2)
    other = dataclasses.replace(recipe, data=small_recipe("sentiment").data, name=recipe.name)
    shorter = dataclasses.replace(other, data=NoisyReviews)
    with pytest.raises(RunError, match=r"it was 256 samples, 64 of them with digest .*, and is 90 samples, 64 of them"):
        surefoot.train(shorter, path=str(tmp_path / "run"))


def test_a_run_that_fails_again_and_again_is_not_started_by_itself(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=4")
    for _ in range(3):
        train_to(recipe, tmp_path / "run", 2)
    with pytest.raises(RunError, match="failed 3 times in a row without progress; the last time: Stop"):
        surefoot.train(recipe, path=str(tmp_path / "run"))
    assert surefoot.train(recipe, path=str(tmp_path / "run"), accept_change=True).status == "finished"


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(small_recipe, tmp_path, monkeypatch):
    recipe = small_recipe("regression", "max_steps=6", "save_every=2")
    plain = surefoot.train(recipe, path=str(tmp_path / "plain"))
    rename = os.rename

    def full(source, target):
        if "step-000000004" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", full)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert (run.status, told(run)) == ("finished", told(plain))
    (event,) = [event for event in run.happened() if event.kind == "save-failed"]
    assert "step 4 was not saved" in event.text
    assert "No space left" in event.text
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-000000002", "step-000000006"]


def test_only_damaged_checkpoints_are_no_reason_to_start_afresh(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=6", "save_every=2")
    train_to(recipe, tmp_path / "run", 3)
    for file in (tmp_path / "run" / "checkpoints").rglob("state.json"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged:\n  step-000000002: state\.json"):
        surefoot.train(recipe, path=str(tmp_path / "run"))


def test_a_damaged_checkpoint_is_passed_over_and_named(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=6", "save_every=2")
    train_to(recipe, tmp_path / "run", 5)
    (tmp_path / "run" / "checkpoints" / "step-000000004" / "state.json").unlink()
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert told(run) == told(surefoot.train(recipe, path=str(tmp_path / "alone")))
    (event,) = [event for event in run.happened() if event.kind == "checkpoint-rejected"]
    assert event.text.startswith("step-000000004: state.json")


def breaking_loss(recipe, at: int, *, by: float, micro_batches: int = 2):
    """The recipe's loss, with one micro-batch multiplied; which one is told by the samples' order, not by counting."""
    spoilt = {}

    def loss(model, batch):
        total, count = recipe.loss(model, batch)
        key = batch[0].double().sum().item()
        if model.training:
            spoilt.setdefault(key, len(spoilt))
        return (total * by if spoilt.get(key) == at * micro_batches else total), count

    return loss


def test_nan_stops_before_the_update_and_names_the_samples(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=1")
    broken = dataclasses.replace(recipe, loss=breaking_loss(recipe, 3, by=float("nan")))
    with pytest.raises(NonFinite, match=r"(?s)the loss of step 4 is nan; the update was not made.*samples "):
        surefoot.train(broken, path=str(tmp_path / "run"))
    run = surefoot.read_run(tmp_path / "run")
    assert [path.name for path in sorted(run.checkpoints.glob("step-*"))][-1] == "step-000000003"
    (finding,) = json.loads(run.findings.read_text())["findings"]
    assert finding["where"].startswith("step 4, micro-batch 1, samples")
    row = run.rows()[-1]
    assert (row.step, row.updated, row.loss != row.loss) == (4, False, True)


def test_an_update_can_be_left_out_and_is_counted(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "nonfinite=skip")
    broken = dataclasses.replace(recipe, loss=breaking_loss(recipe, 3, by=float("nan")))
    run = surefoot.train(broken, path=str(tmp_path / "run"))
    assert (run.status, run.updates_left_out) == ("finished", 1)
    assert [row.updated for row in run.rows()] == [True, True, True, False, True, True]
    assert all(
        torch.isfinite(tensor).all() for tensor in Checkpoints(run.checkpoints).newest().load()["model"].values()
    )


def test_a_spike_rewinds_past_its_samples(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=24", "save_every=4", "rewind=yes")
    broken = dataclasses.replace(recipe, loss=breaking_loss(recipe, 21, by=50.0))
    run = surefoot.train(broken, path=str(tmp_path / "run"))
    kinds = [event.kind for event in run.happened()]
    assert kinds == ["spike", "rewound"]
    assert (run.status, run.steps, run.attempt, run.passed_over) == ("finished", 24, 1, (21,))
    rows = run.rows()
    assert [row.step for row in rows] == list(range(1, 25))
    assert [row.attempt for row in rows] == [0] * 20 + [1] * 4
    assert max(row.loss for row in rows[20:]) < 2
    undisturbed = surefoot.train(recipe, path=str(tmp_path / "undisturbed"))
    digests = [row.samples_digest for row in undisturbed.rows()]
    assert [row.samples_digest for row in rows[:23]] == digests[:21] + digests[22:]
