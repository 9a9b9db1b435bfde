"""Knobs from a file: the same as on the command line, which overrules them; unknown names and tables are refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError, SurefootError
from surefoot.integrations.sweep.space import axes_of
from surefoot.recipe.config import settings_text, tomllib, with_config
from surefoot.recipe.knobs import convert, defaults_of, hints_of
from surefoot.recipe.load import find_function, load_recipe

RECIPE = """
import torch
from torch import nn
from surefoot import Recipe

def line(width: int = 5, lr: float = 1e-2, deep: bool = False, kind: str = "plain", model: str = "") -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(width, 1),
        data=lambda: torch.utils.data.TensorDataset(torch.randn(64, width), torch.randn(64, 1)),
        loss=lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=8, max_steps=2)
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line.py").write_text(RECIPE)
    return tmp_path


def config(text: str) -> Path:
    file = Path("run.toml")
    file.write_text(text)
    return file


def run(*words: str):
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.exception or made.output
    return made


def test_a_run_with_a_file_is_the_run_with_these_knobs_and_its_record_holds_them(here):
    config('width = 7\nlr = 3e-2\ndeep = true\nkind = "of, its own"\nprecision = "bf16-true"\nseed = 3\n')
    given = ["width=7", "lr=0.03", "deep=true", "kind=of, its own", "precision=bf16-true", "seed=3"]
    run("train", "line.py", "--config", "run.toml", "--run", "by-file")
    run("train", "line.py", *given, "--run", "by-words")
    one, other = (json.loads((here / each / "run.json").read_text()) for each in ("by-file", "by-words"))
    assert one["knobs"] == other["knobs"]
    assert one["knobs"] | {"width": 7, "lr": 0.03, "deep": True, "kind": "of, its own", "seed": 3} == one["knobs"]
    assert one["weights_digest"] == other["weights_digest"]


def test_the_command_line_overrules_the_file(here):
    file = config("width = 7\nlr = 0.5\nmax_epochs = 3")
    assert with_config("line.py", ["lr=0.1"], file) == ["width=7", "max_epochs=3", "lr=0.1"]
    recipe = load_recipe("line.py", with_config("line.py", ["max_steps=9"], file))
    assert (recipe.max_steps, recipe.max_epochs, recipe.knobs["width"]) == (9, None, 7)
    assert load_recipe("line.py", with_config("line.py", [], file)).max_steps is None


@pytest.mark.parametrize("command", ["plan", "check", "profile", "sweep"])
def test_other_commands_take_it_too(command, here):
    config("widht = 7")
    words = ["lr=1..2", "--to", "x"] if command == "sweep" else []
    made = CliRunner().invoke(app, [command, "line.py", *words, "--config", "run.toml"])
    assert "run.toml: line.py has no knob 'widht'; did you mean 'width'?" in str(made.exception)


def test_a_plan_is_made_with_the_files_knobs(here):
    config("width = 12")
    assert json.loads(run("plan", "line.py", "--config", "run.toml", "--json").stdout)["parameters"] == 13


def test_a_list_of_the_file_varies_in_a_sweep_and_joins_names(here):
    words = with_config("line.py", ["lr=0.1"], config('width = [2, 3]\nkind = ["of", "its"]'))
    axes, fixed = axes_of("line.py", words)
    assert [(axis.name, axis.choices) for axis in axes] == [("width", (2, 3))]
    assert fixed == {"kind": "of,its", "lr": 0.1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("widht = 7", "run.toml: line.py has no knob 'widht'; did you mean 'width'? `surefoot plan line.py --help`"),
        ("[width]\na = 1", "run.toml: width is a table; a knob is a text, a number, true, false or a list of these"),
        ("width = 1979-05-27", "run.toml: width is the date 1979-05-27; a knob is"),
        ("width = [[1]]", "run.toml: width is the list [[1]]; a knob is"),
        ("width = ", "run.toml is not TOML: TOMLDecodeError: Invalid value (at "),
        ("width = 7\nwidth = 8", "run.toml is not TOML: TOMLDecodeError: Cannot overwrite a value"),
        ("width = 2.5", "knob width='2.5' is not a whole number"),
        ("lr = nan", "knob lr='nan' is nan; write a finite number"),
        ("max_steps = 1\nmax_epochs = 2", "max_steps=1 and max_epochs=2 each end the run: give one of them"),
    ],
)
def test_what_is_no_knob_is_refused(text, message, here):
    with pytest.raises(RecipeError) as caught:
        load_recipe("line.py", with_config("line.py", [], config(text)))
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read_and_one_for_a_script_are_refused(here):
    made = CliRunner().invoke(app, ["train", "line.py", "--config", "none.toml"])
    assert isinstance(made.exception, SurefootError)
    assert str(made.exception) == "none.toml cannot be read: No such file or directory"
    (here / "script.py").write_text("print(1)\n")
    config("width = 1")
    made = CliRunner().invoke(app, ["plan", "script.py", "--config", "run.toml"])
    assert "--config plans a recipe; a script takes --try" in " ".join(made.output.split())


@settings(max_examples=20, deadline=None)
@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_arrives_as_it_is(tmp_path_factory, whole, number):
    file = tmp_path_factory.getbasetemp() / "numbers.toml"
    file.write_text(f"seed = {whole!r}\nmax_grad_norm = {number!r}\n")
    words = dict(word.split("=") for word in with_config("regression", [], file))
    assert convert("seed", words["seed"], int) == whole
    assert convert("max_grad_norm", words["max_grad_norm"], float) == number


@pytest.mark.parametrize("name", ["finetune", "gpt"])
def test_a_written_file_says_every_default_as_it_is(name, tmp_path):
    pytest.importorskip("transformers", reason="pip install transformers")
    function = find_function(name)
    written = settings_text(function, f"surefoot train {name}", {"model": "here"})
    bare = tomllib.loads("\n".join(line.removeprefix("# ") for line in written.splitlines()[2:]))
    assert list(bare) == list(hints_of(function))
    (tmp_path / "run.toml").write_text("\n".join(f"{line.removeprefix('# ')}" for line in written.splitlines()[2:]))
    words = dict(word.split("=", 1) for word in with_config(name, [], tmp_path / "run.toml"))
    usual = defaults_of(function)
    assert {each: convert(each, words[each], hints_of(function)[each]) for each in usual} == usual


def test_init_writes_the_knobs_of_finetune_beside_its_recipe(here):
    said = run("init", "mine", "--like", "finetune").stdout.splitlines()
    assert said[-2:] == [
        "wrote mine.toml, for a model of transformers; fill in what it asks for; next:",
        "  surefoot train finetune --config mine.toml --run runs/tuned",
    ]
    assert set(tomllib.loads((here / "mine.toml").read_text())) == {"model"}
    (here / "mine.py").unlink()
    made = CliRunner().invoke(app, ["init", "mine", "--like", "finetune"])
    assert str(made.exception) == "mine.toml is already there, and init overwrites nothing; choose another name"
    assert not (here / "mine.py").exists()
    assert surefoot.load_recipe("line.py").name == "line"
