"""deterministic=true: torch's flags are set while a recipe runs, kept with the run, compared on resume, restored."""

import os
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.errors import RecipeError, RunError, WorldError
from surefoot.techniques import deterministic
from surefoot.training.lr_range import lr_range
from surefoot.training.overfit import overfit
from tests.resumed import assert_same_bits, train_to

OFF = {
    "use_deterministic_algorithms": "off",
    "cudnn.deterministic": "off",
    "cudnn.benchmark": "off",
    "CUBLAS_WORKSPACE_CONFIG": "not set",
}
ON = {**OFF, "use_deterministic_algorithms": "on", "cudnn.deterministic": "on", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.fixture(autouse=True)
def flags(monkeypatch):
    """Starts with all flags off, and restores them."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "to be restored")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = torch.backends.cudnn.benchmark = False


def test_a_run_resumes_to_the_same_bits_with_the_flags_in_force(small_recipe, tmp_path):
    recipe = small_recipe("sentiment", "max_steps=6", "save_every=2", "deterministic=true")
    assert_same_bits(recipe, tmp_path, 3)
    assert surefoot.read_run(tmp_path / "alone").determinism == ON
    assert deterministic.in_force() == OFF


class Putting(nn.Module):
    """Uses an operator for which torch has no deterministic kernel, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, values):
        return torch.zeros(4).put(torch.tensor([0]), (self.weight * values.sum(0)).sum()[None]).sum()


def putting(**settings) -> Recipe:
    return Recipe(
        model=Putting,
        data=lambda: TensorDataset(torch.ones(8, 4)),
        loss=lambda model, batch: model(batch[0]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        max_steps=2,
        **settings,
    )


@pytest.mark.parametrize("way", [surefoot.train, surefoot.check, surefoot.profile, overfit, lr_range])
def test_every_way_that_takes_steps_sets_them(way, tmp_path):
    named = {"path": str(tmp_path / "run")} if way is surefoot.train else {}
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        way(putting(deterministic=True), **named)
    assert deterministic.in_force() == OFF


def test_what_was_set_before_is_set_again(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    before = deterministic.in_force()
    run = surefoot.train(small_recipe("regression", "max_steps=1", "deterministic=true"), path=str(tmp_path / "run"))
    assert run.determinism == {**ON, "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    assert deterministic.in_force() == before
    assert before["use_deterministic_algorithms"] == "warn only"


def test_flags_that_somebody_else_set_are_recorded_and_a_resume_without_them_is_refused(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=4", "save_every=1")
    torch.use_deterministic_algorithms(True)
    train_to(recipe, tmp_path / "run", 2)
    assert surefoot.read_run(tmp_path / "run").determinism == {**OFF, "use_deterministic_algorithms": "on"}
    torch.use_deterministic_algorithms(False)
    with pytest.raises(RunError, match="use_deterministic_algorithms was on and is off"):
        surefoot.train(recipe, path=str(tmp_path / "run"))
    run = surefoot.train(recipe, path=str(tmp_path / "run"), accept_change=True)
    assert (run.status, run.determinism) == ("finished", OFF)


def test_flags_of_a_gpu_do_not_count_on_a_cpu(small_recipe, tmp_path, monkeypatch):
    recipe = small_recipe("regression", "max_steps=4", "save_every=1")
    train_to(recipe, tmp_path / "run", 2)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.backends.cudnn.benchmark = True
    assert surefoot.train(recipe, path=str(tmp_path / "run")).status == "finished"
    now = deterministic.in_force()
    assert list(deterministic.changes(OFF, now, on_cuda=True)) == [
        "cudnn.benchmark was off and is on",
        "CUBLAS_WORKSPACE_CONFIG was not set and is :16:8",
    ]
    assert list(deterministic.changes({}, now, on_cuda=True)) == []  # a run from before they were recorded


def test_the_setting_may_not_change(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=4", "save_every=1")
    train_to(recipe, tmp_path / "run", 2)
    with pytest.raises(RunError) as refused:
        surefoot.train(replace(recipe, deterministic=True), path=str(tmp_path / "run"))
    assert "deterministic was False and is True\n" in str(refused.value)


def test_cuda_that_has_started_without_the_workspace_is_said(small_recipe, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(WorldError, match="CUDA has started without it; set CUBLAS_WORKSPACE_CONFIG=:4096:8 in the"):
        surefoot.check(small_recipe("regression", "deterministic=true"))


def test_a_workspace_that_cuda_started_with_stays(small_recipe, monkeypatch):
    with deterministic.applied(small_recipe("regression", "deterministic=true")):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_plan_says_that_it_costs(small_recipe):
    said = surefoot.plan(small_recipe("regression", "deterministic=true")).choices
    assert any(line.startswith("deterministic=true: ") and "slower" in line for line in said)
    assert not any("deterministic" in line for line in surefoot.plan(small_recipe("regression")).choices)


def test_it_is_true_or_false():
    with pytest.raises(RecipeError, match="deterministic='yes' must be one of True, False"):
        putting(deterministic="yes")
