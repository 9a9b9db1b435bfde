"""surefoot init: every template is written once, passes the checks, and learns."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot.cli.init import TEMPLATES
from surefoot.cli.main import app
from surefoot.errors import RecipeError, SurefootError
from surefoot.watch import watch_script

RECIPES = [name for name in TEMPLATES if name != "own-loop"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str):
    return CliRunner().invoke(app, ["init", *words])


def refused(*words: str) -> str:
    result = init(*words)
    assert isinstance(result.exception, SurefootError), result.output
    return str(result.exception)


@pytest.mark.sweep
@pytest.mark.parametrize("like", RECIPES)
def test_a_recipe_passes_every_check_and_learns(like: str, here):
    made = init("newcomer", "--like", like)
    assert made.exit_code == 0, made.exception
    recipe = surefoot.load_recipe("newcomer.py", ["max_steps=60"])
    assert recipe.name == "newcomer"
    assert surefoot.check(recipe).findings == ()
    assert surefoot.plan(recipe).steady.peak.peak_bytes > 0
    losses = [row.loss for row in surefoot.train(recipe, path="run").rows()]
    assert losses[-1] < 0.75 * losses[0]


def test_the_script_passes_every_check_and_learns(here, capsys):
    assert init("--like", "own-loop").exit_code == 0
    watched = watch_script("own_loop.py")
    assert watched.findings.findings == ()
    losses = [float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert losses[-1] < 0.5 * losses[0]


def test_fine_tuning_starts_from_the_weights_in_a_file(here):
    init("tuned", "--like", "finetune")
    body = surefoot.load_recipe("tuned.py", ["seed=7"]).model().body
    save_file(body.state_dict(), "body.safetensors")
    words = ["init_from=body.safetensors", "max_steps=1", "evaluate_every=none"]
    recipe = surefoot.load_recipe("tuned.py", [*words, "init_accept=head.*"])
    run = surefoot.train(recipe, path="run")
    trained = load_file(run.weights)
    assert all(torch.equal(trained[f"body.{name}"], weight) for name, weight in body.state_dict().items())
    frozen = recipe.model().named_parameters()
    assert [name for name, weight in frozen if weight.requires_grad] == ["head.weight", "head.bias"]
    with pytest.raises(RecipeError, match=r"keeps its first values, 2: head.weight, head.bias"):
        surefoot.train(surefoot.load_recipe("tuned.py", words), path="other")


def test_it_says_what_to_type_next(here):
    assert init("my model").stdout.splitlines() == [
        "wrote my model.py; next:",
        "  surefoot check 'my model.py'",
        "  surefoot train 'my model.py' --run 'runs/my model'",
        "  surefoot report 'runs/my model'",
    ]
    made = json.loads(init("folder/loop.py", "--like", "own-loop", "--json").stdout)
    assert made["file"] == "folder/loop.py"
    assert made["next"][1] == "surefoot watch folder/loop.py --run runs/loop"


def test_no_file_is_overwritten(here):
    (here / "mine.py").write_text("precious")
    assert refused("mine") == "mine.py is already there, and init overwrites nothing; choose another name"
    (here / "link.py").symlink_to("nowhere.py")
    assert refused("link").startswith("link.py is already there")
    assert sorted(path.name for path in here.iterdir()) == ["link.py", "mine.py"]
    assert (here / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--like", "seq2sec"), "no template 'seq2sec'; did you mean 'seq2seq'? known: classifier, gpt,"),
        (("--like", "zzz"), "no template 'zzz'; known: classifier, gpt, seq2seq, own-loop, finetune"),
        (("torch",), "torch.py would hide the module 'torch' that Python has"),
        (("/",), "'/' names no file"),
        (("/proc/none/x.py",), "/proc/none/x.py could not be written"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(words, said, here):
    assert refused(*words).startswith(said)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["Classifier", "class", "1st"])
def test_a_name_that_means_something_else_stays_that_of_the_file(name, here):
    init(name)
    assert surefoot.load_recipe(f"{name}.py").name == "classifier"
