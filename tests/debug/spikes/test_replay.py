"""replay: a spike is attributed to its samples, to a rate, to a gradient or to a precision; a clean run to nothing."""

import math
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe
from surefoot.cli.main import app
from surefoot.data.batches import batches_of
from surefoot.debug.spikes.find import symptom_at
from surefoot.debug.spikes.replay import replay
from surefoot.debug.spikes.samples import guilty
from surefoot.errors import NonFinite, RecipeError, RunError
from surefoot.records.codec import from_json
from surefoot.records.log import LogRow
from surefoot.records.spike import Attribution
from surefoot.reports.console import as_text
from surefoot.reports.spike import attribution_text

STEP = 31


class Squares(nn.Module):
    """A norm that squares in the format of its input: float16 overflows above 256."""

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


class Net(nn.Module):
    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8, bias=False)
        nn.init.eye_(self.stem.weight)
        self.norm, self.middle = Squares(), nn.BatchNorm1d(8) if batch_norm else nn.Identity()
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.middle(self.norm(self.stem(x))))


def loss(model, batch):
    x, y = batch
    return (model(x)[:, 0] - y).square().sum(), len(y)


def recipe(change=None, picked=(), *, model=Net, schedule=None, **changes) -> Recipe:
    """A line through points of length one, and noise. `change` changes the picked samples."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(512, 8, generator=draws)
    y = x[:, 0] / x.norm(dim=1) + 0.1 * torch.randn(512, generator=draws)
    if change is not None:
        x[list(picked)], y[list(picked)] = change(x[list(picked)], y[list(picked)])
    fields = {
        "model": model,
        "data": lambda: TensorDataset(x, y),
        "loss": loss,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "schedule": schedule,
        "freeze": "stem.*",
        "micro_batch_size": 4,
        "global_batch_tokens": 8,
        "max_steps": 36,
        "save_every": 5,
        "keep_last": 9,
    }
    return Recipe(**{**fields, **changes})


def taken(step: int) -> list[int]:
    """The samples of a step."""
    made = recipe()
    batches = batches_of(made, first_step=step - 1)
    for _ in range(made.micro_batches()):
        next(batches)
    return list(batches.taken)


def replayed(made: Recipe, tmp_path: Path, **options) -> Attribution:
    with suppress(NonFinite):
        surefoot.train(made, path=str(tmp_path / "run"))
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    found = replay(str(tmp_path / "run"), made, **options)
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    return found


# ------------------------------------------------------------------------------------------- causes


def test_two_samples_are_named_and_the_loss_without_them(tmp_path):
    two = [taken(STEP)[1], taken(STEP)[6]]
    found = replayed(recipe(lambda x, y: (x, y + 50), two), tmp_path)
    assert (found.symptom.step, found.cause, sorted(found.samples)) == (STEP, "samples", sorted(two))
    assert found.as_logged
    assert found.from_step == 20
    assert found.variations[0].loss == found.symptom.loss
    assert found.variations[-1].cured
    assert found.variations[-1].loss < 1
    said = as_text(attribution_text(found), width=300)
    assert "without them the loss is 0." in said
    assert "their largest number is 5" in said
    assert "bit for bit as logged" in said


@pytest.mark.sweep
def test_a_wrong_sample_of_ordinary_size_is_said_to_be_looked_at(tmp_path):
    (one,) = taken(STEP)[3:4]
    found = replayed(recipe(lambda x, y: (x, -3 * y.sign()), [one]), tmp_path)
    assert (found.cause, found.samples) == ("samples", (one,))
    assert "look at their labels" in found.said


@pytest.mark.sweep
def test_samples_are_found_beneath_a_batch_norm(tmp_path):
    (one,) = taken(STEP)[5:6]
    found = replayed(recipe(lambda x, y: (x, y + 50), [one], model=lambda: Net(batch_norm=True)), tmp_path)
    assert (found.cause, found.samples) == ("samples", (one,))


def test_a_rate_that_jumps_is_named_with_its_step(tmp_path):
    made = recipe(schedule=lambda step, steps: 200.0 if step == STEP - 2 else 1.0)
    found = replayed(made, tmp_path)
    assert (found.symptom.step, found.cause, found.at_step) == (STEP, "learning-rate", STEP - 1)
    assert "was 20, 200 times the 0.1 before it" in found.said
    assert found.variations[-1].cured


def test_an_update_with_an_unusual_gradient_is_named(tmp_path):
    class Kick(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0], None

    def kicking(model, batch):
        x, y, factor = batch
        return (Kick.apply(model(x)[:, 0], factor) - y).square().sum(), len(y)

    made = recipe()
    x, y = made.data().tensors
    factor = torch.ones(512)
    factor[taken(STEP - 1)] = 500.0
    found = replayed(recipe(data=lambda: TensorDataset(x, y, factor), loss=kicking), tmp_path)
    assert (found.symptom.step, found.cause, found.at_step) == (STEP, "gradient", STEP - 1)
    assert "max_grad_norm" in found.remedy


def test_float16_that_overflows_in_one_module_is_named(tmp_path):
    made = recipe(lambda x, y: (1000 * x, y), taken(STEP)[:7], precision="16-mixed", float32="head")
    found = replayed(made, tmp_path)
    assert (found.symptom.step, found.cause, found.module) == (STEP, "precision", "norm")
    assert found.remedy == "set float32='norm'"


def test_a_nan_is_replayed_from_where_it_stopped_and_its_operation_is_named(tmp_path):
    (one,) = taken(STEP)[2:3]
    found = replayed(recipe(lambda x, y: (x, y * math.nan), [one]), tmp_path)
    assert (found.symptom.step, found.cause, found.samples) == (STEP, "samples", (one,))
    assert "The batch itself holds numbers that are not finite" in found.nonfinite


@pytest.mark.sweep
def test_a_gradient_that_is_not_finite_is_measured_as_such(tmp_path):
    (one,) = taken(STEP)[2:3]

    def rooted(model, batch):
        x, y = batch
        return ((model(x)[:, 0] - y).square() + 0.0 * (x[:, 0] - 7 + 0 * model(x)[:, 0]).abs().sqrt()).sum(), len(y)

    found = replayed(recipe(lambda x, y: (x.index_fill(1, torch.tensor([0]), 7.0), y), [one], loss=rooted), tmp_path)
    assert found.symptom.in_gradient
    assert (found.cause, found.samples) == ("samples", (one,))
    assert "the gradient norm is" in found.said


# ------------------------------------------------------------------------------------------- nothing to find


def test_a_clean_run_has_nothing_to_attribute_and_exits_with_0(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    surefoot.train(surefoot.load_recipe("regression", ["max_steps=40"]), path="run")
    done = CliRunner().invoke(app, ["replay", "run"])
    assert done.exit_code == 0
    assert "nothing stands out in 40 steps" in done.output
    assert replay("run", step=30).symptom is None
    with pytest.raises(RunError, match="the log has no step 41"):
        replay("run", step=41)
    with pytest.raises(RunError, match="at least 16 others"):
        replay("run", step=5)


def test_a_spike_that_no_replay_shows_is_not_attributed(tmp_path):
    made = recipe()
    surefoot.train(made, path=str(tmp_path / "run"))
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_text().splitlines()
    row = from_json(LogRow, lines[STEP - 1])
    lines[STEP - 1] = lines[STEP - 1].replace(f'"loss": {row.loss!r}', '"loss": 77.0')
    log.write_text("\n".join(lines) + "\n")
    found = replay(str(tmp_path / "run"), made)
    assert (found.symptom.loss, found.cause, found.as_logged) == (77.0, "unknown", False)
    assert "replayed here, step 31 is ordinary" in found.said


def test_a_recipe_with_its_own_step_is_refused(tmp_path):
    def step(network, optimizer, batch):
        found, count = loss(network, batch)
        optimizer.zero_grad()
        (found / count).backward()
        optimizer.step()
        return found / count

    own = {"loss": None, "step": step, "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1)}
    with pytest.raises(RecipeError, match="replay needs the usual update"):
        replayed(recipe(lambda x, y: (x, y + 50), taken(15)[:1], global_batch_tokens=None, **own), tmp_path)


def test_the_command_prints_the_record_and_exits_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from tests.debug.spikes.test_replay import recipe, taken, STEP\n"
        "def mine():\n    return recipe(lambda x, y: (x, y + 50), taken(STEP)[:1])\n"
    )
    surefoot.train(surefoot.load_recipe("mine.py:mine"), path="run")
    done = CliRunner().invoke(app, ["replay", "run", "mine.py:mine", "--json"])
    assert done.exit_code == 1
    assert from_json(Attribution, done.output).samples == tuple(taken(STEP)[:1])
    with pytest.raises(RunError, match="--trust-run"):
        replay("run")


# ------------------------------------------------------------------------------------------- on made-up logs


def rows(*losses: float) -> list[LogRow]:
    return [LogRow(step, each, 1.0, 1.0, 0.1, 8, None, "", True, 1.0, 0.0) for step, each in enumerate(losses, 1)]


def test_the_first_of_several_steps_is_where_it_begins():
    usual = [1.0 + 0.01 * (number % 3) for number in range(20)]
    assert symptom_at(rows(*usual), None) is None
    found = symptom_at(rows(*usual, 5.0, 9.0, 7.0, *usual, 3.0), None)
    assert (found.step, found.shown_at) == (21, 22)
    found = symptom_at(rows(*usual, 5.0, *usual, math.nan), None)
    assert (found.step, found.shown_at) == (42, 42)
    assert symptom_at(rows(*usual, 5.0, 1.0), 21).step == 21


def test_bisection_finds_all_that_must_go_and_gives_up_on_too_many():
    units = [(0, row) for row in range(16)]

    def mean(of):
        return sum(100.0 if row in (3, 12) else 1.0 for _, row in of) / len(of)

    out, loss = guilty(units, mean, lambda found: found < 2)
    assert sorted(out) == [(0, 3), (0, 12)]
    assert loss == 1.0
    assert guilty(units, lambda of: 50.0, lambda found: found < 2) is None
    assert guilty(units[:1], mean, lambda found: True) is None
