"""EMA: averages of weights that are evaluated, kept, exported and resumed, and cost what the plan says."""

import dataclasses
import os
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from typer.testing import CliRunner

import surefoot
from surefoot import load_recipe
from surefoot.checkpoint.state import restore
from surefoot.checkpoint.store import Checkpoints
from surefoot.cli.main import app
from surefoot.data.batches import batches_of
from surefoot.debug.runs.audit import audit
from surefoot.errors import RecipeError, RunError
from surefoot.planning import recipe_plan as way
from surefoot.randomness import derive, seed_all
from surefoot.step import Step
from surefoot.ways.export import export_weights
from surefoot.world.world import RealWorld, World
from tests.own_steps import two
from tests.ranks import Case, on_ranks
from tests.resumed import assert_same_bits, final_state, told, train_in_parts, train_to
from tests.scored import loss, samples, scored
from tests.techniques.ranks import SMALL, whole

pytestmark = pytest.mark.sweep

DECAY = 0.8


def averaged(**changes):
    """With a batch norm: its statistics are buffers."""

    def model():
        return nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

    return scored(**{"model": model, "max_steps": 20, "best": None, "ema": DECAY, **changes})


def averages_of(run) -> dict[str, torch.Tensor]:
    return Checkpoints(run.checkpoints).newest().load()["ema"]["averages"]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------------------------------- what is averaged


def test_averages_are_those_of_torch(tmp_path):
    recipe = averaged(micro_batch_size=6)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    seed_all(recipe.seed)
    model = recipe.model()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer, batches = recipe.optimizer(model.parameters()), batches_of(recipe)
    for number in range(20):
        seed_all(derive(recipe.seed, "step", number, "rank", 0, "micro-batch", 0))
        total, count = loss(model, next(batches))
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(model)
    assert same(load_file(run.weights), dict(average.module.state_dict()))
    assert same(averages_of(run), {name: each.detach() for name, each in average.module.named_parameters()})


def test_training_has_the_same_bits_with_and_without(tmp_path):
    plain = surefoot.train(averaged(ema=None), path=str(tmp_path / "plain"))
    run = surefoot.train(averaged(), path=str(tmp_path / "run"))
    assert told(run) == told(plain)
    before, after = final_state(plain), final_state(run)
    assert {name: value for name, value in after.items() if "'ema'" not in name} == before
    assert [row.evaluation_loss for row in run.rows()] != [row.evaluation_loss for row in plain.rows()]
    assert not [event for event in run.happened() if event.kind == "finding"]
    assert run.memory_bytes["averages"] == run.memory_bytes["parameters"]
    assert "averages" not in plain.memory_bytes


def test_evaluations_tests_and_weights_use_the_averages(tmp_path):
    recipe = averaged()
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    model = recipe.model()
    model.load_state_dict(load_file(run.weights))
    for data, seen in ((samples(101, 2), run.evaluation_loss), (samples(77, 3), run.tests["test"]["loss"])):
        with torch.no_grad():
            total, count = loss(model.eval(), data.tensors)
        assert seen == pytest.approx((total / count).item(), rel=1e-6)
    held = Checkpoints(run.checkpoints).newest().load()["model"]
    written = load_file(run.weights)
    assert not torch.equal(held["0.weight"], written["0.weight"])
    assert torch.equal(held["1.running_mean"], written["1.running_mean"])


def test_weights_of_bfloat16_are_averaged_in_float32(tmp_path):
    run = surefoot.train(averaged(precision="bf16-true", ema=0.999, metrics=None), path=str(tmp_path / "run"))
    averages, written = averages_of(run), load_file(run.weights)
    assert {each.dtype for each in averages.values()} == {torch.float32}
    assert {each.dtype for name, each in written.items() if "num_batches" not in name} == {torch.bfloat16}
    assert all(torch.equal(averages[name].bfloat16(), written[name]) for name in averages)
    with World() as world:
        first = dict(Step(averaged(precision="bf16-true"), world).model.named_parameters())
    assert not torch.equal(first["0.weight"].float(), averages["0.weight"])


def test_frozen_parameters_have_no_average(tmp_path):
    run = surefoot.train(averaged(freeze="0.*"), path=str(tmp_path / "run"))
    assert set(averages_of(run)) == {"1.weight", "1.bias", "4.weight", "4.bias"}


def test_a_skipped_update_is_not_averaged():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.weight * x

    recipe = dataclasses.replace(
        load_recipe("regression"), model=Broken, loss=lambda model, x: model(x).sum(), nonfinite="skip", ema=0.5
    )
    with World() as world:
        step = Step(recipe, world)
        step([torch.ones(2)])
        before = step.ema.tensors["weight"].clone()
        assert not step([torch.full((2,), torch.nan)]).updated
        assert torch.equal(step.ema.tensors["weight"], before)
        assert step.ema.updates == 1


def test_an_update_of_the_recipes_own_is_averaged(tmp_path):
    recipe = two(ema=DECAY, save_every=2)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert set(averages_of(run)) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    parts = train_in_parts(recipe, tmp_path / "parts", 3)
    assert final_state(parts) == final_state(run)


def test_a_callback_gets_the_averages(tmp_path):
    kept = {}

    def keep(run, row):
        kept.update({name: each.clone() for name, each in run.model().state_dict().items()})

    run = surefoot.train(averaged(on_step=keep), path=str(tmp_path / "run"))
    assert same(kept, load_file(run.weights))


# ------------------------------------------------------------------------------------------- resume, best, export


def test_stopped_and_resumed_it_has_the_same_bits(tmp_path):
    assert_same_bits(averaged(max_steps=14), tmp_path, 3, 6, 11)


def test_an_audit_compares_the_averages(tmp_path):
    recipe = averaged(max_steps=14, keep_last=3)
    surefoot.train(recipe, path=str(tmp_path / "run"))
    assert audit(recipe, str(tmp_path / "run")).differing == ()


def test_the_best_step_is_kept_with_its_averages(tmp_path):
    recipe = averaged(max_steps=60, best="-loss")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert 0 < run.best_step < 60
    best = next(each for each in Checkpoints(run.checkpoints) if each.step == run.best_step).load()
    written = load_file(run.weights)
    assert all(torch.equal(written[name], each) for name, each in best["ema"]["averages"].items())
    assert torch.equal(written["1.running_mean"], best["model"]["1.running_mean"])
    model = recipe.model()
    model.load_state_dict(written)
    with torch.no_grad():
        total, count = loss(model.eval(), samples(77, 3).tensors)
    assert run.tests["test"]["loss"] == pytest.approx((total / count).item(), rel=1e-6)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_exports_hold_the_averages(precision, tmp_path):
    recipe = averaged(precision=precision, metrics=None)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    if precision == "32-true":
        made = surefoot.export(run.path, recipe, to=str(tmp_path / "whole"))
        assert same(load_file(made.weights), load_file(run.weights))
    files = export_weights(run.path, to=str(tmp_path / "newest")).files
    assert same(load_file(files[0]), load_file(run.weights))


def test_a_run_may_begin_to_average_if_the_change_is_accepted(tmp_path):
    train_to(averaged(ema=None), tmp_path / "run", 10)
    with pytest.raises(RunError, match=r"ema was None and is 0\.8"):
        surefoot.train(averaged(), path=str(tmp_path / "run"))
    with World() as world:
        step = Step(averaged(), world)
        restore(step, Checkpoints(tmp_path / "run" / "checkpoints").newest())
        assert all(torch.equal(step.ema.tensors[name], each) for name, each in step.model.named_parameters())
    run = surefoot.train(averaged(), path=str(tmp_path / "run"), accept_change=True)
    assert run.status == "finished"
    assert Checkpoints(run.checkpoints).newest().load()["ema"]["updates"] == 12


# ------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("name", "precision"),
    [("gpt", "32-true"), ("gpt", "bf16-true"), ("fashion-convolutional", "bf16-mixed"), ("gan", "32-true")],
)
def test_a_plan_equals_the_allocator(name, precision, small_recipe):
    recipe = dataclasses.replace(small_recipe(name), ema=0.99, precision=precision)
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.steady.peak.peak_bytes == profile.steady.peak.peak_bytes
    assert plan.first.peak.peak_bytes == profile.first.peak.peak_bytes
    assert plan.steady.peak.peak_bytes == pytest.approx(profile.allocated_peak_bytes, rel=2e-4)
    with World() as world:
        step = Step(recipe, world)
    held = sum(each.nbytes for each in step.ema.tensors.values())
    without = surefoot.plan(dataclasses.replace(recipe, ema=None))
    assert plan.steady.tally.total("memory/averages") == held
    assert plan.state_bytes == without.state_bytes + held
    assert plan.checkpoint_bytes == without.checkpoint_bytes + held
    assert plan.steady.peak.peak_bytes == without.steady.peak.peak_bytes + held
    assert any(each.startswith("ema=0.99: evaluations and kept weights") for each in plan.choices)


def test_a_plan_from_a_few_blocks_is_that_of_all(monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 7)
    recipe = load_recipe("gpt", ["layers=12", "width=16", "heads=2", "context=16", "micro_batch_size=2", "ema=0.99"])
    recipe = dataclasses.replace(recipe, global_batch_tokens=None)
    few, every = surefoot.plan(recipe), surefoot.plan(recipe, reuse=False)
    assert "runs with 3, 4 and 5" in few.blocks
    assert dataclasses.replace(few, blocks="") == dataclasses.replace(every, blocks="")


def test_the_checks_find_nothing(small_recipe):
    recipe = dataclasses.replace(small_recipe("fashion-convolutional"), ema=0.99)
    assert [each.check for each in surefoot.check(recipe).findings] == []


@pytest.mark.parametrize("value", [0, 1, 1.5, "often"])
def test_a_decay_outside_of_its_range_is_refused(value):
    with pytest.raises(RecipeError, match="ema="):
        averaged(ema=value)


def test_the_command_line_takes_it(tmp_path):
    words = ["layers=1", "width=16", "heads=2", "context=16", "max_steps=2", "ema=0.9"]
    done = CliRunner().invoke(app, ["train", "gpt", *words, "--run", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "averages" in done.output


# ------------------------------------------------------------------------------------------- many ranks


def on_these_ranks(words: list[str]) -> tuple[dict[str, torch.Tensor], float, list[float]]:
    """The averages of a small gpt after four steps, the loss of an evaluation, and the losses of the steps."""
    recipe = load_recipe("gpt", [*SMALL, "ema=0.8", *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        losses = []
        for _ in range(4):
            losses.append(step(world.take(batches) for _ in range(step.micro_batches)).loss.item())
            held_out = step.evaluate([world.take(batches) for _ in range(step.micro_batches)]).loss.item()
        return {name: whole(each) for name, each in step.ema.tensors.items()}, held_out, losses


def trained(path: str, words: list[str], stops_after: int | None = None) -> str:
    """A run on these ranks, to its end or to a stop."""

    def tell(_, row) -> None:
        if row.step == stops_after:
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = load_recipe("gpt", [*SMALL, "max_steps=6", "save_every=2", "ema=0.8", *words])
    recipe = dataclasses.replace(recipe, evaluation=recipe.data, evaluate_every=3)
    return surefoot.train(recipe, path=path, tell=tell).status


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    words = {"one": [], "replicated": ["dp_replicate=2", "dp_shard=1"], "sharded": ["dp_shard=2"], "cut": ["tp=2"]}
    cases = [
        Case("tests.techniques.test_ema", "on_these_ranks", 1 if name == "one" else 2, (each,))
        for name, each in words.items()
    ]
    return dict(zip(words, on_ranks(cases, tmp_path_factory.mktemp("ema")), strict=True))


@pytest.mark.parametrize("layout", ["replicated", "sharded", "cut"])
def test_averages_do_not_depend_on_the_ranks(layout, layouts):
    averages, held_out, losses = layouts["one"][0]
    for others, other_loss, other_losses in layouts[layout]:
        assert other_losses == pytest.approx(losses, rel=1e-5)
        assert other_loss == pytest.approx(held_out, rel=1e-5)
        for name, average in averages.items():
            assert torch.allclose(others[name], average, rtol=1e-4, atol=1e-6)


def test_sharded_averages_are_saved_whole_and_resumed_elsewhere(tmp_path):
    whole_run, resumed = str(tmp_path / "whole"), str(tmp_path / "resumed")
    cases = [("trained", 2, (whole_run, ["dp_shard=2"])), ("trained", 2, (resumed, ["dp_shard=2"], 3))]
    done = on_ranks([Case("tests.techniques.test_ema", *each) for each in cases], tmp_path)
    assert done == [["finished"] * 2, ["interrupted"] * 2]
    assert trained(resumed, []) == "finished"
    made = {path: surefoot.read_run(path) for path in (whole_run, resumed)}
    for run in made.values():
        written = load_file(run.weights)  # the token's weights are there under their other name
        assert all(torch.equal(written[name], each) for name, each in averages_of(run).items() if "token" not in name)
    assert Checkpoints(made[resumed].checkpoints).newest().load()["ema"]["updates"] == 6
    for name, each in averages_of(made[resumed]).items():
        assert torch.allclose(each, averages_of(made[whole_run])[name], rtol=1e-4, atol=1e-6)
