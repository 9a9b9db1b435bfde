"""lr_range: the rate rises by a constant factor on a fresh model, and what is suggested trains."""

import dataclasses
from itertools import pairwise

import pytest
import torch

import surefoot
from surefoot.errors import NonFinite, RecipeError
from surefoot.records.codec import from_json, to_json
from surefoot.records.lr_range import LrRange
from surefoot.training.lr_range import lr_range
from tests.conftest import SMALL


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMALL)
def test_the_reference_recipes_have_a_rate_to_suggest(name: str, small_recipe):
    found = lr_range(small_recipe(name))
    assert found.suggested_lr is not None
    assert 1e-5 < found.suggested_lr < 1
    assert found.edge_lr is None or found.suggested_lr <= found.edge_lr / 10
    assert from_json(LrRange, to_json(found)) == found


def test_the_rate_rises_by_a_constant_factor_from_the_first_to_the_last(small_recipe):
    recipe = dataclasses.replace(small_recipe("sentiment"), max_grad_norm=1e-9)  # never diverges
    found = lr_range(recipe, first_lr=1e-4, last_lr=1.0, steps=41)
    rates = [point.lr for point in found.points]
    assert (found.ended, len(rates)) == ("at the last rate", 41)
    assert rates[0] == pytest.approx(1e-4)
    assert rates[-1] == pytest.approx(1.0)
    assert [later / earlier for earlier, later in pairwise(rates)] == pytest.approx([10**0.1] * 40)


def test_the_schedule_is_off_and_groups_keep_the_ratio_of_their_rates(small_recipe):
    seen = []

    def optimizer(parameters):
        first, *others = parameters
        groups = [{"params": [first], "lr": 0.02}, {"params": others, "lr": 0.1}]
        seen.append(torch.optim.SGD(groups))
        return seen[-1]

    recipe = dataclasses.replace(small_recipe("sentiment"), optimizer=optimizer, schedule=lambda step, steps: 0.0)
    found = lr_range(recipe, steps=30)
    assert found.own_lr == 0.02
    assert found.points[0].lr == pytest.approx(1e-7)
    first, others = seen[0].param_groups
    assert others["lr"] / first["lr"] == pytest.approx(5)


def test_every_step_is_one_micro_batch_of_real_data(small_recipe):
    recipe, sizes = small_recipe("sentiment"), []

    def loss(model, batch):
        sizes.append(len(batch[0]))
        return recipe.loss(model, batch)

    found = lr_range(dataclasses.replace(recipe, loss=loss), steps=30)
    assert sizes == [64] * len(found.points)
    assert (found.samples, found.micro_batches) == (64, 2)


def test_it_stops_where_the_loss_diverges_or_is_not_finite(small_recipe):
    diverged = lr_range(small_recipe("cruncher"))
    assert diverged.ended == "diverged"
    assert diverged.points[-1].lr < 10
    recipe = small_recipe("cruncher")
    calls = iter(range(100))

    def loss(model, batch):
        total, count = recipe.loss(model, batch)
        return total * (float("nan") if next(calls) == 20 else 1), count

    broken = lr_range(dataclasses.replace(recipe, loss=loss))
    assert (broken.ended, len(broken.points)) == ("not finite", 20)
    with pytest.raises(NonFinite, match="before any update"):
        lr_range(dataclasses.replace(recipe, loss=lambda model, batch: model(batch[0]).sum() / 0))


def test_a_model_that_cannot_learn_gets_no_suggestion(small_recipe):
    recipe = small_recipe("sentiment")
    still = dataclasses.replace(recipe, loss=lambda model, batch: 0 * recipe.loss(model, batch)[0] + 1)
    found = lr_range(still)
    assert (found.suggested_lr, found.steepest_lr, found.edge_lr) == (None, None, None)


def test_the_suggested_rate_trains_better_than_one_beyond_the_edge(small_recipe, tmp_path):
    found = lr_range(small_recipe("cruncher"))

    def last_loss(lr: float) -> float:
        recipe = small_recipe("cruncher", f"lr={lr}", "max_steps=40")
        return surefoot.train(recipe, path=str(tmp_path / str(lr))).last_loss

    assert last_loss(found.suggested_lr) < 0.5 < last_loss(10 * found.edge_lr)


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_every_precision_has_a_rate_to_suggest(precision: str, small_recipe):
    found = lr_range(small_recipe("gpt", f"precision={precision}"))
    assert found.suggested_lr is not None


@pytest.mark.parametrize("settings", [{"steps": 29}, {"first_lr": 1.0, "last_lr": 0.1}, {"first_lr": 0.0}])
def test_a_range_that_says_nothing_is_refused(settings, small_recipe):
    with pytest.raises(RecipeError, match="shows nothing"):
        lr_range(small_recipe("regression"), **settings)
