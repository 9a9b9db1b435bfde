"""Recipes are found by name, file or module; knobs are read by their type hints."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot.errors import RecipeError
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.knobs import convert
from surefoot.recipe.load import SETTINGS, load_recipe, make_recipe

FILE = """
import torch
from torch import nn
from surefoot import Recipe
from neighbour import WIDTH

def helper(x=1):
    return x

def {name}(width: int = WIDTH, lr: float = 1e-2, deep: bool = False, kind: str = "plain") -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(width, 1),
        data=lambda: torch.utils.data.TensorDataset(torch.randn(64, width), torch.randn(64, 1)),
        loss=lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=8, max_steps=2)
"""


@pytest.fixture
def recipe_file(tmp_path):
    (tmp_path / "neighbour.py").write_text("WIDTH = 5\n")
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(FILE.format(name="mine")))
    return path


def test_the_reference_recipes_are_built_in():
    assert builtin_recipes() == (
        "cruncher", "distill", "fashion", "finetune", "gan", "gpt", "hf", "llama", "ppo", "regression", "sam",
        "sentiment"
    )  # fmt: skip


def test_a_file_a_function_in_it_and_a_module_name_the_same_recipe(recipe_file, monkeypatch):
    monkeypatch.syspath_prepend(str(recipe_file.parent))
    for target in (str(recipe_file), f"{recipe_file}:mine", "mine:mine"):
        recipe = load_recipe(target, ["width=7", "deep=true", "kind=fancy", "lr=3e-4"])
        assert recipe.name == "mine"
        assert recipe.knobs == {"width": 7, "lr": 3e-4, "deep": True, "kind": "fancy"}
        assert recipe.model().weight.shape == (1, 7)


def test_a_recipe_from_a_file_goes_all_five_ways(recipe_file, tmp_path):
    recipe = load_recipe(str(recipe_file))
    assert surefoot.plan(recipe).parameters == 6
    assert surefoot.check(recipe).findings == ()
    assert surefoot.profile(recipe, timed_steps=1).parameters == 6
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    recipe_file.write_text("raise ImportError('the file has changed since')\n")
    assert surefoot.export(run.path, trust_run=True).program_difference <= 1e-5


def test_the_settings_of_every_recipe_can_be_set_even_if_its_function_does_not_take_them():
    recipe = load_recipe("regression", ["max_steps=7", "precision=bf16-mixed", "seed=3", "max_grad_norm=none"])
    assert (recipe.max_steps, recipe.precision, recipe.seed, recipe.max_grad_norm) == (
        7,
        "bf16-mixed",
        3,
        None,
    )
    assert recipe.knobs["max_steps"] == 7
    assert set(SETTINGS) <= set(surefoot.Recipe.__dataclass_fields__)


@pytest.mark.parametrize(
    ("target", "words", "message"),
    [
        ("gtp", [], r"no recipe 'gtp'; did you mean 'gpt'\? built in: cruncher, distill, fashion, finetune, gan,"),
        (
            "gpt",
            ["layer=3"],
            r"gpt has no knob 'layer'; did you mean 'layers' or 'layers_every'\? `surefoot plan gpt --help` lists all$",
        ),
        ("gpt", ["layers=three"], r"knob layers='three' is not a whole number"),
        ("gpt", ["layers=2.5"], r"knob layers='2.5' is not a whole number"),
        ("gpt", ["lr=fast"], r"knob lr='fast' is not a number"),
        ("gpt", ["lr=1e400"], r"knob lr='1e400' is inf; write a finite number"),
        ("regression", ["lr=nan"], r"knob lr='nan' is nan; write a finite number"),
        ("gpt", ["max_grad_norm=-inf"], r"knob max_grad_norm='-inf' is -inf; write a finite number"),
        ("fashion", ["network=deep"], r"knob network='deep' is not one of dense, convolutional"),
        ("gpt", ["precision=fp4"], r"knob precision='fp4' is not one of 32-true"),
        ("gpt", ["layers"], r"'layers' is not a knob; write name=value"),
        ("gpt", ["layers=1", "layers=2"], r"knob 'layers' is given twice"),
        ("gpt", ["micro_batch_size=0"], r"micro_batch_size=0 must be at least 1"),
        ("no_file.py", [], r"no file no_file.py"),
        ("no_module_x:function", [], r"cannot import module 'no_module_x'"),
        ("surefoot.recipes.gpt:nothing", [], r"has no function 'nothing'; it holds: gpt"),
        ("platform:node", [], r"platform:node returned str, not a Recipe"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(target, words, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(target, words)


@pytest.mark.parametrize(
    ("words", "steps", "gone"), [("max_tokens=2**20", 512, "max_steps"), ("max_steps=9", 9, "max_tokens")]
)
def test_a_default_never_ends_a_run_before_what_the_user_gave(words, steps, gone):
    recipe = load_recipe("llama", [words.replace("2**20", str(2**20))])
    assert recipe.steps() == steps
    assert getattr(recipe, gone) is None
    assert gone not in recipe.knobs
    again = make_recipe("llama", recipe.knobs)  # as a resume does
    assert again.steps() == steps


def test_two_ends_of_a_run_are_refused():
    with pytest.raises(RecipeError, match="max_steps=500 and max_tokens=1e11 each end the run: give one of them"):
        load_recipe("llama", ["max_tokens=1e11", "max_steps=500"])
    assert load_recipe("regression", ["max_tokens=80", "max_steps=none"]).max_tokens == 80


def test_a_file_with_two_recipes_asks_which(tmp_path):
    (tmp_path / "neighbour.py").write_text("WIDTH = 5\n")
    path = tmp_path / "both.py"
    path.write_text(FILE.format(name="one") + FILE.format(name="two"))
    with pytest.raises(RecipeError, match="does not say which function to use; it holds: one, two"):
        load_recipe(str(path))


@given(st.integers(-(10**12), 10**12))
def test_whole_numbers_survive(value):
    assert convert("n", str(value), int) == value
    assert convert("n", f"{value:_}", int | None) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive(value):
    assert convert("x", repr(value), float) == value


def test_a_word_for_no_number_may_be_text():
    assert convert("limit", "inf", float | str) == "inf"


def test_whole_numbers_may_be_written_with_an_exponent():
    assert convert("tokens", "1e9", int) == 10**9
    assert convert("tokens", "none", int | None) is None


def test_a_file_that_is_no_text_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "noise.py").write_bytes(b"a\x00b\xff")
    with pytest.raises(RecipeError, match=r"noise\.py is not Python"):
        surefoot.load_recipe(str(tmp_path / "noise.py"))
