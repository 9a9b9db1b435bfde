"""Every number of a recipe has a range, and every knob of a built-in recipe too; what is outside is one line."""

import math
import re
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError, SurefootError
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.knobs import hints_of
from surefoot.recipe.load import find_function
from surefoot.recipe.ranges import Range
from surefoot.recipe.recipe import SETTINGS, Recipe

RECIPE = Recipe(
    model=lambda: nn.Linear(1, 1),
    data=lambda: TensorDataset(torch.zeros(4, 1)),
    loss=lambda model, batch: model(batch[0]).mean(),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)
NEVER = [math.nan, math.inf, -math.inf, True, "3", [1], -3, 2**63 + 5, 10**400, torch.ones(())]


NUMBERS = [name for name, each in SETTINGS.items() if each.range]


def test_no_number_of_a_recipe_is_without_a_range():
    numbers = {field.name for field in fields(Recipe) if re.match(r"(int|float)\b", str(field.type))}
    assert numbers == set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", NEVER, ids=[repr(value)[:12] for value in NEVER])
def test_a_number_outside_of_its_range_is_refused_by_name(name, value):
    with pytest.raises(RecipeError) as caught:
        replace(RECIPE, **{name: value})
    assert str(caught.value).startswith(f"{name}=")
    assert "must be" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_grad_norm", -1, "max_grad_norm=-1 must be above 0, or None"),
        ("max_grad_norm", 0.0, "max_grad_norm=0.0 must be above 0, or None"),
        ("workers", 2000, "workers=2000 must be at least 0 and at most 1,024, or auto"),
        ("seed", -1, "seed=-1 must be at least 0"),
        ("density", 1.5, "density=1.5 must be above 0 and at most 1, or None"),
        ("density", 0, "density=0 must be above 0 and at most 1, or None"),
        ("micro_batch_size", 2.5, "micro_batch_size=2.5 must be a whole number, at least 1"),
        ("micro_batch_size", "8", "micro_batch_size='8' must be a whole number, at least 1"),
        ("dp_shard", 0, "dp_shard=0 must be at least 1, or -1 for all remaining ranks"),
        ("model", 3, "model must be a function, not int"),
        ("collate", "default", "collate must be a function, or None, not str"),
        ("rewind", "yes", "rewind='yes' must be one of True, False"),
        ("recompute", None, "recompute=None must be text"),
    ],
)
def test_what_it_must_be_is_said(name, value, said):
    with pytest.raises(RecipeError) as caught:
        replace(RECIPE, **{name: value})
    assert str(caught.value) == said


def test_whole_numbers_in_another_dress_are_taken():
    recipe = replace(RECIPE, micro_batch_size=8.0, seed=np.int64(3), max_steps=np.float64(10), max_grad_norm=1)
    assert [type(each) for each in (recipe.micro_batch_size, recipe.seed, recipe.max_steps)] == [int, int, int]
    assert (recipe.micro_batch_size, recipe.seed, recipe.max_steps, recipe.max_grad_norm) == (8, 3, 10, 1)


BAD = ("0", "-1", "-0.5", "nan", "inf", "1e300", "2.5", "x", "")


@pytest.mark.parametrize("name", [name for name in builtin_recipes() if name not in ("hf", "finetune")])
def test_knobs_of_built_in_recipes_have_ranges(name):
    """Each number of each recipe, with all that it can never be: a recipe, or a `RecipeError` with the knob's name."""
    numbers = [knob for knob, hint in hints_of(find_function(name)).items() if hint in (int, float, int | None)]
    assert numbers
    for knob in numbers:
        refused = [said for text in BAD if (said := _refusal(name, f"{knob}={text}"))]
        assert len(refused) >= 4, knob
        assert all(knob in said for said in refused)


def _refusal(name: str, word: str) -> str:
    try:
        surefoot.load_recipe(name, [word])
    except RecipeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpt", "layers=0"], "layers=0 must be at least 1 and at most 10,000"),
        (["gpt", "heads=0"], "heads=0 must be at least 1"),
        (["gpt", "heads=3"], "width=128 is not a multiple of heads=3"),
        (["gpt", "lr=-1"], "lr=-1.0 must be at least 0"),
        (["gpt", "context=0"], "context=0 must be at least 1"),
        (["llama", "layers=0"], "layers=0 must be at least 1"),
        (["sentiment", "dropout=1.5"], "dropout=1.5 must be at least 0 and at most 1"),
        (["regression", "samples=0"], "samples=0 must be at least 1"),
        (["regression", "seed=-1"], "seed=-1 must be at least 0"),
        (["regression", "max_grad_norm=-1"], "max_grad_norm=-1.0 must be above 0, or None"),
        (["regression", "max_grad_norm=nan"], "knob max_grad_norm='nan' is nan; write a finite number"),
    ],
)
def test_what_a_command_line_gives_is_held_to_them(words, said):
    with pytest.raises(RecipeError) as caught:
        surefoot.load_recipe(words[0], words[1:])
    assert str(caught.value).startswith(said)


def test_a_range_takes_its_ends():
    assert Range(float, 0, 1).check("x", 1) == 1
    assert Range(float, 0, 1).check("x", 0.0) == 0
    with pytest.raises(RecipeError):
        Range(float, 0, 1, above=True).check("x", 0)


@pytest.mark.parametrize(
    "words",
    [
        ("hardware", "napkin", "h100-sxm", "--parameters", "-1"),
        ("hardware", "napkin", "h100-sxm", "--mfu", "0", "--parameters", "1e9", "--tokens", "1e9"),
        ("hardware", "napkin", "h100-sxm", "--mfu", "nan"),
        ("hardware", "napkin", "h100-sxm", "--price", "inf"),
        ("hardware", "napkin", "99999999999xh100-sxm"),
        ("check", "gpt", "--overfit", "--target-loss", "nan"),
        ("plan", "gpt", "--on", "h100-sxm", "--budget", "days=nan"),
        ("plan", "gpt", "--on", "h100-sxm", "--budget", "dollars=-1"),
    ],
)
def test_numbers_of_the_command_line_have_ranges(words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit | SurefootError)


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("def r(x: 'Unknown' = 1) -> 'Recipe': ...", "r.py:r", "the parameters of r cannot be read: name 'Unknown'"),
        ("def r(x): ...", "r.py:r", "r.py:r: missing a required argument: 'x'; give it as a knob"),
        ("r = 3", "r.py:r", "r.py:r is int, not a function that returns a Recipe"),
        ("", ":r", ":r names no module"),
        ("", "..x:r", "..x:r names no module"),
    ],
)
def test_a_function_that_cannot_be_called_is_named(tmp_path, monkeypatch, source, target, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.py").write_text(source)
    with pytest.raises(RecipeError, match=said):
        surefoot.load_recipe(target)
