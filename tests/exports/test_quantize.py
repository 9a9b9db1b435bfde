"""export --quantize: int8 weights that are read without pickle, and whose cost is stated."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe
from surefoot.cli.main import app
from surefoot.data.tokenize import tokenize
from surefoot.errors import MissingPackage, ParityError, RecipeError, RunError
from surefoot.exports import quantised_file, quantize
from surefoot.recipe.load import load_recipe
from surefoot.records.export import read_export

pytest.importorskip("torchao", reason="pip install torchao")
WORDS = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=64"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"the {number}th cat sat on the mat, and then it left. " * 12)
    tokenize([f"text={folder}/*.txt"], folder / "tokens", tokenizer="bytes", held_out=0.25)
    return folder / "tokens"


@pytest.fixture(scope="module")
def run(tmp_path_factory, text):
    recipe = load_recipe("gpt", [*WORDS, "max_steps=20", f"corpus={text}"])
    return surefoot.train(recipe, path=str(tmp_path_factory.mktemp("gpt") / "run"))


@pytest.fixture(scope="module", params=["int8", "int8-dynamic"])
def made(request, run, tmp_path_factory):
    to = tmp_path_factory.mktemp(request.param) / "out"
    return surefoot.export(run.path, to=str(to), formats=["safetensors"], quantize=request.param)


def test_the_file_is_smaller_and_its_cost_is_in_record_and_card(made):
    small = made.quantised
    assert Path(small.path).name == f"model.{small.kind}.safetensors"
    assert small.bytes < 0.5 * made.weights_bytes
    assert small.file_difference == 0
    assert 0 < small.output_difference < 0.1
    assert small.data == "evaluation"
    assert small.before["bits per byte"] == pytest.approx(small.after["bits per byte"], rel=0.02)
    assert small.before != small.after
    card = (Path(made.weights).parent / "README.md").read_text()
    assert f"| bits per byte | {small.before['bits per byte']:.6g} | {small.after['bits per byte']:.6g} |" in card
    assert read_export(Path(made.weights).parent) == made


def test_the_file_holds_plain_int8_tensors_and_scales(made):
    with safe_open(made.quantised.path, framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        assert file.metadata()["quantization"] == made.quantised.kind
    whole = load_file(made.weights)
    scales = {name for name in held if name.endswith(".scale")}
    assert len(scales) == made.quantised.layers
    for name in scales:
        weight, trained = held[name.removesuffix(".scale")], whole[name.removesuffix(".scale")]
        assert weight.dtype == torch.int8
        assert (weight * held[name] - trained).abs().max() <= held[name].max() / 2 * 1.001


def test_evaluate_and_generate_read_it(run, made):
    (score,) = surefoot.evaluate(made.quantised.path).scores
    assert score.figures == made.quantised.after
    (plain,) = surefoot.evaluate(run.path).scores
    assert plain.figures == made.quantised.before
    assert surefoot.generate(made.quantised.path, "the cat", tokens=4).tokens == 4


def test_a_model_of_one_layer_and_a_metric(tmp_path):
    def loss(model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    inputs = torch.randn(64, 16)
    recipe = Recipe(
        model=lambda: nn.Linear(16, 4, bias=False),
        data=lambda: TensorDataset(inputs, inputs[:, :4]),
        evaluation=lambda: TensorDataset(inputs, inputs[:, :4]),
        loss=loss,
        metrics=lambda model, batch: {"sign": ((model(batch[0]).sign() == batch[1].sign()).sum(), batch[1].numel())},
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.05),
        micro_batch_size=8,
        max_steps=40,
    )
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    small = surefoot.export(run.path, recipe, formats=["safetensors"], quantize="int8").quantised
    assert small.layers == 1
    assert set(small.after) == {"loss", "sign"}


def test_the_command_prints_the_cost(run, tmp_path):
    said = CliRunner().invoke(
        app, ["export", run.path, "--to", str(tmp_path), "--format", "safetensors", "--quantize", "int8"]
    )
    assert said.exit_code == 0, said.output
    words = " ".join(said.output.split())
    assert "int8: " in words
    assert "bits per byte on evaluation: " in words
    refused = CliRunner().invoke(app, ["export", run.path, "--weights", "--quantize", "int8"])
    assert refused.exit_code == 2


def test_a_weight_that_two_layers_share_and_other_layers_stay(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.body, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9, bias=False)
            self.head.weight = self.token.weight

    assert quantize.weights_of(Tied()) == ["body.weight"]
    assert quantize.weights_of(nn.Sequential(nn.Conv1d(1, 1, 1), nn.Bilinear(2, 2, 2))) == []
    assert quantize.weights_of(nn.MultiheadAttention(4, 1)) == []


def test_a_model_without_linear_layers_and_an_unknown_kind_are_refused(run, tmp_path, monkeypatch):
    with pytest.raises(RunError, match="no quantisation 'int4'; known: int8, int8-dynamic"):
        surefoot.export(run.path, quantize="int4")
    monkeypatch.setattr(quantize, "weights_of", lambda model: [])
    with pytest.raises(RunError, match=r"gpt has no weight that can become int8: .*; leave out --quantize"):
        surefoot.export(run.path, to=str(tmp_path), formats=["safetensors"], quantize="int8")


def test_a_file_that_does_not_hold_the_quantised_model_is_caught(run, tmp_path, monkeypatch):
    real = quantised_file.stored

    def halved(model):
        return {name: each / 2 if name.endswith(".scale") else each for name, each in real(model).items()}

    monkeypatch.setattr(quantised_file, "stored", halved)
    with pytest.raises(ParityError, match="the outputs of the exported int8 weights differ"):
        surefoot.export(run.path, to=str(tmp_path), formats=["safetensors"], quantize="int8")


def test_files_that_are_not_whole_are_refused(made, text, tmp_path):
    whole = load_file(made.quantised.path)
    name = next(each for each in whole if each.endswith(".scale"))
    kind = made.quantised.kind

    def written(tensors, quantization):
        save_file(tensors, tmp_path / "other.safetensors", metadata={"quantization": quantization})
        return str(tmp_path / "other.safetensors")

    words = [*WORDS, "max_steps=20", f"corpus={text}"]
    for tensors, said, quantization in (
        ({**whole, name: whole[name][:-1].clone()}, "is int8, without a float32 scale for each of its rows", kind),
        ({**whole, name: whole[name].double()}, "is int8, without a float32 scale for each of its rows", kind),
        ({each: whole[each] for each in whole if each != name}, "has another number format", kind),
        (whole, "has the quantisation 'int3', which surefoot does not know; known: int8", "int3"),
        (whole | {"strange": torch.zeros(1)}, "it has strange, which the model has not", kind),
    ):
        with pytest.raises(RunError, match=said):
            surefoot.evaluate(written(tensors, quantization), "gpt", knobs=words)
    with pytest.raises(RecipeError, match=f"is quantised \\({kind}\\), which cannot be trained"):
        surefoot.train(load_recipe("gpt", [*words, f"init_from={made.quantised.path}"]), path=str(tmp_path / "run"))
    copy = shutil.copytree(Path(made.weights).parent, tmp_path / "copy")
    file = copy / Path(made.quantised.path).name
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match=r"cannot use .*; copy it again, or export the run again"):
        surefoot.evaluate(str(file))
    assert json.loads((copy / "export.json").read_text())["quantised"]["kind"] == kind


def test_without_torchao_the_command_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchao", None)
    with pytest.raises(MissingPackage, match=r"quantisation needs torchao: pip install torchao"):
        surefoot.export(run.path, quantize="int8")
