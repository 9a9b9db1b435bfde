"""Callbacks of a recipe: called for every step and evaluation, without any effect on the training."""

import random
import signal
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError
from tests.ranks import Case, on_ranks
from tests.resumed import final_state, told, train_in_parts
from tests.scored import scored

pytestmark = pytest.mark.sweep


def test_each_step_and_each_evaluation_is_reported(tmp_path):
    steps, evaluations = [], []
    recipe = scored(
        max_steps=12,
        on_step=lambda run, row: steps.append((run.step, run.steps, row)),
        on_evaluation=lambda run, row: evaluations.append((run.folder, run.best_step, row.evaluation_loss)),
    )
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert [(step, last) for step, last, _ in steps] == [(number, 12) for number in range(1, 13)]
    assert [row for _, _, row in steps] == run.rows()
    losses = {row.step: row.evaluation_loss for row in run.rows() if row.evaluation_loss is not None}
    assert list(losses) == [5, 10, 12]
    assert [(folder, loss) for folder, _, loss in evaluations] == [(tmp_path / "run", each) for each in losses.values()]
    assert [best for _, best, _ in evaluations] == [5, 10, 12]


def test_a_callback_that_touches_everything_changes_no_bit(tmp_path):
    built, made = [], []

    def model():
        built.append(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3)))
        return built[-1]

    def optimizer(parameters):
        made.append(torch.optim.AdamW(parameters, lr=0.02))
        return made[-1]

    def meddle(run, row):
        torch.manual_seed(5), np.random.seed(5), random.seed(5)
        torch.rand(3), np.random.rand(), random.random()
        torch.set_default_dtype(torch.float64)
        network = built[0]
        network(torch.ones(2, 3, dtype=torch.float32)).sum().backward()
        network.eval()
        network[0].weight.requires_grad_(False)
        made[0].param_groups[0]["lr"] = 7.0
        torch.set_grad_enabled(False)
        row.metrics["accuracy"] = -1.0
        copied = run.model()
        copied[0].weight.data.zero_()

    plain = surefoot.train(scored(max_steps=20), path=str(tmp_path / "plain"))
    recipe = scored(max_steps=20, model=model, optimizer=optimizer, on_step=meddle, on_evaluation=meddle)
    meddled = surefoot.train(recipe, path=str(tmp_path / "meddled"))
    assert [row.metrics for row in meddled.rows()] == [row.metrics for row in plain.rows()]
    assert meddled.metrics == plain.metrics
    assert told(meddled) == told(plain)
    assert final_state(meddled) == final_state(plain)
    assert meddled.weights.read_bytes() == plain.weights.read_bytes()
    assert torch.is_grad_enabled()
    assert not [event for event in meddled.happened() if event.kind == "callback-failed"]


def test_a_callback_that_writes_weights_is_refused(tmp_path):
    built = []

    def model():
        built.append(nn.Linear(3, 3))
        return built[-1]

    def write(run, row):
        with torch.no_grad():
            built[0].weight.mul_(2)

    with pytest.raises(RecipeError, match=r"on_step wrote to weight, which is being trained.*run\.model\(\)"):
        surefoot.train(scored(model=model, on_step=write), path=str(tmp_path / "run"))


def test_a_callback_that_writes_the_optimizers_state_is_refused(tmp_path):
    made = []

    def optimizer(parameters):
        made.append(torch.optim.AdamW(parameters, lr=0.02))
        return made[-1]

    def write(run, row):
        next(iter(made[0].state.values()))["exp_avg"].zero_()

    with pytest.raises(RecipeError, match=r"on_step wrote to the optimizer's exp_avg of 0\.weight"):
        surefoot.train(scored(optimizer=optimizer, on_step=write), path=str(tmp_path / "run"))


@pytest.mark.parametrize("settings", [{}, {"precision": "bf16-true"}, {"recompute": "none", "micro_batch_size": 2}])
def test_the_model_of_a_step_is_a_copy_with_its_weights(settings, tmp_path):
    kept = {}

    def keep(run, row):
        model = run.model()
        assert not model.training
        kept[run.step] = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    recipe = scored(max_steps=3, best=None, metrics=None, on_step=keep, **settings)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    written = load_file(run.weights)
    assert all(torch.equal(kept[3][name], tensor) for name, tensor in written.items())
    assert not torch.equal(kept[2]["0.weight"], written["0.weight"])


def test_an_exception_is_one_warning_with_the_users_line(tmp_path):
    def broken(run, row):
        raise ValueError("no such thing")

    line = broken.__code__.co_firstlineno + 1
    recipe = scored(max_steps=6, on_step=broken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = surefoot.train(recipe, path=str(tmp_path / "run"))
    (only,) = [each for each in caught if "on_step" in str(each.message)]
    assert "on_step failed after step 1, and the run continues: ValueError: no such thing" in str(only.message)
    assert (only.filename, only.lineno) == (__file__, line)
    assert run.status == "finished"
    (event,) = [each for each in run.happened() if each.kind == "callback-failed"]
    assert event.text.endswith(f"(test_callbacks.py:{line})")


def test_a_stopped_run_misses_no_row(tmp_path):
    seen = []
    recipe = scored(max_steps=14, best=None, on_step=lambda run, row: seen.append(row.step))
    train_in_parts(recipe, tmp_path / "run", 3, 6, 11)
    assert seen == [*range(1, 4), *range(1, 7), *range(5, 12), *range(9, 15)]


KILLED = """
import os, signal
import torch
from torch import nn
from torch.utils.data import TensorDataset
from surefoot import Recipe

def note(run, row):
    if row.step in (4, 7, 8) and not (run.folder / f"killed-{row.step}").exists():
        (run.folder / f"killed-{row.step}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with open(run.folder / "seen.txt", "a") as file:
        print(row.step, file=file)

def recipe() -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(3, 1),
        data=lambda: TensorDataset(torch.randn(32, 3)),
        loss=lambda model, batch: (model(batch[0]) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        on_step=note,
        max_steps=10,
        save_every=1,
    )
"""


def test_killed_inside_a_callback_no_step_is_missing(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, "-m", "surefoot", "train", "killed.py", "--no-plan", "--run", "run"]
    codes = [subprocess.run(command, cwd=tmp_path, capture_output=True).returncode for _ in range(4)]
    assert codes == [-signal.SIGKILL] * 3 + [0]
    seen = [int(line) for line in (tmp_path / "run" / "seen.txt").read_text().split()]
    assert sorted(set(seen)) == list(range(1, 11))


def test_the_command_line_calls_them_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "raise OSError('share is away')")
    (tmp_path / "raising.py").write_text(text)
    with pytest.warns(RuntimeWarning, match="on_step failed after step 4, and the run continues: OSError: share is"):
        done = CliRunner().invoke(app, ["train", "raising.py", "--no-plan", "--run", "run"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "seen.txt").read_text().split() == ["1", "2", "3", "5", "6", "9", "10"]


def called_on(path: str) -> list[int]:
    """The steps for which this rank was called."""
    seen: list[int] = []
    recipe = scored(
        max_steps=3,
        global_batch_tokens=8,
        dp_replicate=2,
        dp_shard=1,
        on_step=lambda run, row: seen.append(int(run.model().training) + row.step),
    )
    surefoot.train(replace(recipe, best=None), path=path)
    return seen


def refused_on(path: str) -> list[str]:
    """What a callback says that asks for a model which is split over ranks."""
    said: list[str] = []

    def ask(run, row):
        try:
            run.model()
        except surefoot.SurefootError as error:
            said.append(str(error))

    recipe = scored(max_steps=1, global_batch_tokens=8, dp_shard=2, best=None, on_step=ask)
    surefoot.train(recipe, path=path)
    return said


def test_only_rank_0_calls_them(tmp_path):
    cases = [
        Case("tests.training.test_callbacks", name, 2, (str(tmp_path / name),)) for name in ("called_on", "refused_on")
    ]
    called, refused = on_ranks(cases, tmp_path)
    assert called == [[1, 2, 3], []]
    assert "needs the whole model on one rank" in refused[0][0]
    assert refused[1] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"on_step": lambda row: None}, r"on_step must be a function of two things: on_step\(run, row\)"),
        ({"on_evaluation": 3}, "on_evaluation must be a function, or None, not int"),
        ({"on_evaluation": print, "evaluate_every": None, "best": None}, "needs evaluation and evaluate_every"),
    ],
)
def test_what_cannot_be_called_is_refused(changes, said):
    with pytest.raises(RecipeError, match=said):
        scored(**changes)
