"""Settings of a recipe: one declaration each, from which checks, the command line, help, resume and compare follow."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot.cli.knobs import knobs_text
from surefoot.errors import RecipeError
from surefoot.exports.as_model import with_program
from surefoot.recipe.load import SETTINGS as ON_COMMAND_LINE
from surefoot.recipe.recipe import SETTINGS, Recipe
from surefoot.recipe.setting import setting, settings_in
from surefoot.records.compared import tolerance_for
from surefoot.reports.console import as_text
from surefoot.training.replay import in_one_process
from surefoot.training.resume import FREE, LAYOUT, changes_since


def model() -> nn.Module:
    return nn.Linear(1, 1)


def data() -> TensorDataset:
    return TensorDataset(torch.zeros(4, 1))


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(batch[0]).mean()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


RECIPE = Recipe(model=model, data=data, loss=loss, optimizer=sgd)


@dataclass(frozen=True)
class Noisy:
    """A record whose settings are declared as those of a recipe are."""

    noise: float = setting(0.0, "Noise on the gradients. It is normal.", at_least=0, at_most=1, part="update")
    kind: Literal["normal", "uniform"] = setting("normal", "The `kind` of noise.", changes="nothing")
    every: int | Literal["auto"] | None = setting(None, "How often.", above=0, changes="rounding")
    on: bool | None = setting(None, "Whether there is noise.", changes="layout")
    made: Callable[[], nn.Module] | None = setting(None, "Makes it.")
    name: str = setting("", "Its name.", command_line=False)


def test_a_declaration_is_all_that_a_setting_needs():
    found = settings_in(Noisy)
    assert list(found) == [each.name for each in fields(Noisy)]
    assert [name for name, each in found.items() if each.on_command_line] == ["noise", "kind", "every", "on"]
    assert (found["noise"].default, found["noise"].sentence) == (0.0, "Noise on the gradients")
    assert found["kind"].sentence == "The kind of noise"
    assert str(found["every"].range) == "above 0, or None, or auto"
    assert found["name"].range is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise", 2, "noise=2 must be at least 0 and at most 1"),
        ("noise", None, "noise=None must be a number, at least 0 and at most 1"),
        ("kind", "odd", "kind 'odd' is not one of normal, uniform"),
        ("every", 0, "every=0 must be above 0, or None, or auto"),
        ("on", 1, "on=1 must be one of True, False, None"),
        ("made", 3, "made must be a function, or None, not int"),
        ("name", None, "name=None must be text"),
    ],
)
def test_its_check_follows_from_type_and_range(name, value, message):
    check = settings_in(Noisy)[name].checked()
    with pytest.raises(RecipeError) as caught:
        check(name, value)
    assert str(caught.value) == message
    assert check(name, getattr(Noisy(), name)) == getattr(Noisy(), name)


def test_a_number_without_a_range_is_a_mistake_of_ours():
    @dataclass
    class Wrong:
        rate: float = setting(0.1, "A rate.")

    with pytest.raises(TypeError, match="a number needs at_least or above: A rate"):
        settings_in(Wrong)["rate"].checked()


def test_every_field_of_a_recipe_but_the_given_knobs_is_declared():
    assert [*SETTINGS, "knobs"] == [each.name for each in fields(Recipe)]
    for name, each in SETTINGS.items():
        assert each.about[0].isupper() or each.about[0] == "`", name
        assert each.about.endswith("."), name
        assert len(each.sentence) < 130 or not each.on_command_line, name


def test_a_recipe_is_still_a_plain_data_class():
    parameters = inspect.signature(Recipe).parameters
    assert [each.name for each in fields(Recipe)] == list(parameters)
    assert parameters["tp"].default == Recipe.tp == 1
    assert parameters["bucket_cap_mb"].annotation == "float | None"
    assert [name for name, each in parameters.items() if each.default is each.empty] == ["model", "data", "optimizer"]
    assert pickle.loads(pickle.dumps(RECIPE)) == RECIPE
    assert replace(RECIPE, seed=3).seed == 3
    assert "ema: Keeps a moving average" in str(Recipe.__doc__)


def test_a_value_that_can_be_written_as_a_word_is_a_setting_of_the_command_line():
    plain = {name for name, each in SETTINGS.items() if not (name in FUNCTIONS or each.hint is Callable)}
    assert plain - set(ON_COMMAND_LINE) == {
        "tokens_per_sample",
        "bytes_per_token",
        "made_corpus",
        "epoch_samples",
        "about",
        "name",
        "target",
    }
    assert not FUNCTIONS & set(ON_COMMAND_LINE)


FUNCTIONS = {name for name in SETTINGS if "Callable" in str(Recipe.__dataclass_fields__[name].type)}


@pytest.mark.parametrize("name", ["float32", "best", "freeze", "mirror", "init_from", "save_every"])
def test_none_on_a_command_line_is_no_text(name):
    assert getattr(surefoot.load_recipe("regression", [f"{name}=none"]), name) is None


def test_help_says_what_each_setting_does():
    shown = " ".join(as_text(knobs_text("regression")).split())
    assert "keep_last=3 How many of the latest checkpoints are kept (a whole number)" in shown
    assert "workers=0 Processes that load data (a whole number or auto)" in shown
    own = " ".join(as_text(knobs_text("gpt")).split())
    assert "micro_batch_size=8 Samples in one micro-batch of a rank (a whole number)" in own


def test_a_resume_asks_what_a_setting_changes(tmp_path):
    run = surefoot.train(replace(RECIPE, max_steps=1), path=str(tmp_path / "run"))
    other = replace(RECIPE, max_steps=1, keep_last=9, tp=1, dp_shard=1, reshard_after_forward=False)
    assert list(changes_since(run, other)) == []
    assert list(changes_since(run, replace(other, seed=4))) == ["seed was 0 and is 4"]
    assert {"keep_last", "density", "about"} <= FREE
    assert {"dp_replicate", "dp_shard", "cp", "cp_by", "tp", "reshard_after_forward", "loss_parallel"} == LAYOUT


def test_a_comparison_asks_what_a_setting_changes(tmp_path):
    rounding = {name for name, each in SETTINGS.items() if each.changes == "rounding"}
    run, other = (
        surefoot.train(replace(RECIPE, max_steps=1, loss_chunks=1, **changed), path=str(tmp_path / name))
        for name, changed in {"one": {}, "two": {"bucket_cap_mb": 3.0}}.items()
    )
    assert tolerance_for(run, other, settings=rounding) == (1e-4, "rounding differs: bucket_cap_mb")
    assert tolerance_for(run, other, settings=()) == (0.0, "same layout, torch, threads and device")


def test_a_model_that_is_only_called_has_no_setting_of_training(tmp_path):
    split = replace(RECIPE, tp=2, tensor_plan=lambda model: {}, loss_parallel=True, ema=0.9, freeze="weight", seed=5)
    called = with_program(split, lambda args, kwargs: torch.zeros(1))
    assert (called.tp, called.loss_parallel, called.ema, called.freeze, called.dp_shard) == (1, False, None, None, 1)
    assert called.seed == 5
    run = surefoot.train(replace(RECIPE, max_steps=1), path=str(tmp_path / "run"))
    assert in_one_process(run, split) == replace(
        split, tp=1, loss_parallel=False, dp_shard=1, tensor_plan=None, global_batch_tokens=None
    )
