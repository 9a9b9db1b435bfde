"""predict: one answer for each line or file, by the recipe's own reading."""

import json

import pytest
import torch
from safetensors.torch import load_model
from torch import nn
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe
from surefoot.cli.main import app
from surefoot.errors import DataError, RecipeError
from surefoot.recipe.load import load_recipe
from surefoot.recipes.sentiment import reviews
from tests.reports.hostile import CONTROLS
from tests.scored import scored
from tests.terminals import LIVE, terminal


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return surefoot.train(load_recipe("sentiment", ["max_steps=30"]), path=str(tmp_path_factory.mktemp("s") / "run"))


def lines(folder, *values):
    file = folder / "in.jsonl"
    file.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in values))
    return str(file)


def test_the_command_prints_one_line_for_each_review(run, tmp_path):
    features = reviews(20).tensors[0]
    model = load_recipe("sentiment").model().eval()
    load_model(model, run.weights)
    expected = model(features).softmax(1)
    file = lines(tmp_path, *({"features": each} for each in features.tolist()))
    said = CliRunner().invoke(app, ["predict", run.path, file, "--micro-batch-size", "7"])
    assert said.exit_code == 0, said.output
    answers = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    assert [each["item"] for each in answers] == [str(number) for number in range(1, 21)]
    assert [each["class"] for each in answers] == expected.argmax(1).tolist()
    assert torch.allclose(torch.tensor([each["probabilities"] for each in answers]), expected, atol=1e-6)
    assert {0, 1} == {each["class"] for each in answers}
    to = tmp_path / "out.jsonl"
    made = CliRunner().invoke(app, ["predict", run.path, file, "--to", str(to), "--json"])
    assert json.loads(made.stdout)["items"] == 20
    assert CliRunner().invoke(app, ["predict", run.path, file, "--json"]).exit_code == 2
    again = [json.loads(line) for line in to.read_text().splitlines()]
    assert [each["class"] for each in again] == [each["class"] for each in answers]


def test_an_export_and_its_program_answer_as_the_run_does(run, tmp_path):
    made = surefoot.export(run.path, to=str(tmp_path / "out"), formats=["onnx"])
    file, found = lines(tmp_path, {"features": [0.1, 0.9, 0.2, 0.8]}, {"features": [0.8, 0.1, 0.9, 0.2]}), []
    for path in (run.path, made.weights, made.formats[0].path):
        answers = list[dict]()
        surefoot.predict(path, file, tell=answers.append)
        found.append([each["probabilities"] for each in answers])
    assert found[1] == found[0]
    assert torch.allclose(torch.tensor(found[2]), torch.tensor(found[0]), atol=1e-6)


class Ruler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, lengths):
        return lengths * self.scale


def ruler(**changes) -> Recipe:
    fields = {
        "model": Ruler,
        "data": lambda: [torch.ones(1)] * 8,
        "loss": lambda model, batch: model(batch).square().mean(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        "max_steps": 1,
        "read": lambda file: torch.tensor(float(len(file.read_bytes()))),
        "predict": lambda model, batch: model(batch),
    }
    return Recipe(**{**fields, **changes})


def test_a_regressor_reads_the_files_of_a_folder_in_order(tmp_path):
    run = surefoot.train(ruler(), path=str(tmp_path / "run"))
    (tmp_path / "in").mkdir()
    for name, content in (("b.txt", "12345"), ("a.txt", "1"), (".hidden", "")):
        (tmp_path / "in" / name).write_text(content)
    answers = list[dict]()
    made = surefoot.predict(run.path, str(tmp_path / "in"), ruler(), tell=answers.append)
    assert answers == [{"item": "a.txt", "answer": 1.0}, {"item": "b.txt", "answer": 5.0}]
    assert made.items == 2


SPEAKER = """
import torch
from surefoot import Recipe

def speaker() -> Recipe:
    return Recipe(
        model=lambda: torch.nn.Linear(1, 1), data=lambda: [torch.ones(1)] * 8,
        loss=lambda model, batch: model(batch).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0), max_steps=1,
        read=lambda item: torch.ones(1), predict=lambda model, batch: [TEXT] * len(batch))
"""


def test_an_answer_with_control_characters_does_not_act_on_a_terminal(tmp_path, monkeypatch):
    text = CONTROLS + "\x7f"
    file = tmp_path / "speaker.py"
    file.write_text(SPEAKER.replace("TEXT", repr(text)))
    run = surefoot.train(load_recipe(str(file)), path=str(tmp_path / "run"))
    with terminal(monkeypatch) as sent:
        app(["predict", run.path, lines(tmp_path, 1), str(file)], standalone_mode=False)
    assert LIVE.findall(sent[0]) == []
    assert json.loads(sent[0]) == {"item": "1", "answer": text}


def test_what_cannot_be_read_is_named(run, tmp_path):
    with pytest.raises(DataError, match=r"in\.jsonl, line 2: sentiment cannot read it: KeyError: 'features'"):
        surefoot.predict(run.path, lines(tmp_path, {"features": [1, 2, 3, 4]}, {"other": 1}))
    with pytest.raises(DataError, match=r"line 1: .*; each line must be one JSON value"):
        surefoot.predict(run.path, lines(tmp_path, "not json"))
    with pytest.raises(DataError, match="there is no file or folder"):
        surefoot.predict(run.path, str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no files"):
        surefoot.predict(run.path, str(tmp_path / "empty"))


def test_a_recipe_that_does_not_say_how_is_told_what_to_say(tmp_path):
    recipe = scored(max_steps=1, best=None)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    with pytest.raises(RecipeError, match=r"has no read and no predict; Recipe\(read=...\) makes a sample of an input"):
        surefoot.predict(run.path, lines(tmp_path, 1), recipe)
    bad = ruler(read=lambda item: torch.tensor(float(item)), predict=lambda model, batch: model(batch)[:1])
    run = surefoot.train(bad, path=str(tmp_path / "bad"))
    with pytest.raises(RecipeError, match=r"must return one 'answer' for each of 2 samples, not 1"):
        surefoot.predict(run.path, lines(tmp_path, 1, 2), bad, micro_batch_size=2)
