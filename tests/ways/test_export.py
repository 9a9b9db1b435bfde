"""export: what comes out computes what went in, and a difference is refused."""

import dataclasses
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from surefoot.errors import ParityError, RunError
from surefoot.reports.console import as_text
from surefoot.reports.export import weights_text
from surefoot.ways import export as way


@pytest.fixture
def run(small_recipe, tmp_path):
    return surefoot.train(small_recipe("sentiment", "max_steps=5"), path=str(tmp_path / "run"))


def test_the_program_runs_without_the_recipe_and_takes_any_batch(run):
    record = surefoot.export(run.path)
    assert record.dynamic_batch
    program = torch.export.load(record.program).module()
    x = torch.randn(7, 4)
    from surefoot.recipe.load import make_recipe

    model = make_recipe(run.target, run.knobs).model()
    model.load_state_dict(load_file(record.weights))
    torch.testing.assert_close(program(x), model.eval()(x), rtol=1e-5, atol=1e-6)


def test_the_exported_weights_are_the_trained_ones(run):
    record = surefoot.export(run.path)
    trained, exported = load_file(run.weights), load_file(record.weights)
    assert trained.keys() == exported.keys()
    assert all(torch.equal(trained[name], exported[name]) for name in trained)


def test_another_folder_can_be_named(run, tmp_path):
    record = surefoot.export(run.path, to=str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.safetensors",
        "model.pt2",
        "export.json",
        "README.md",
    }
    assert record.program_bytes > 0


def test_a_program_that_computes_something_else_is_refused(run, monkeypatch):
    plain = way.save_program

    def spoiled(model, call, output, file):
        with torch.no_grad():
            kept = model.classify.bias.clone()
            model.classify.bias += 0.01
            made = plain(model, call, output, file)
            model.classify.bias.copy_(kept)
        return made

    monkeypatch.setattr(way, "save_program", spoiled)
    with pytest.raises(ParityError, match="outputs of the exported program differ"):
        surefoot.export(run.path)


def test_weights_that_compute_something_else_are_refused(run, monkeypatch):
    def spoiled(file, model):
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        weights["classify.bias"] += 0.01
        save_file(weights, file)

    monkeypatch.setattr(way, "write_weights", spoiled)
    with pytest.raises(ParityError, match="outputs of the exported weights differ"):
        surefoot.export(run.path)


def test_a_recipe_made_in_python_cannot_be_exported_by_name(small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("sentiment", "max_steps=1"), target="")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    with pytest.raises(RunError, match="made in Python"):
        surefoot.export(run.path)


def test_exported_weights_say_how_many_steps_of_the_log_they_lack(small_recipe, tmp_path):
    recipe = small_recipe("regression", "max_steps=5", "save_every=2")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    whole = way.export_weights(run.path)
    for each in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(each)
    cut = way.export_weights(run.path)
    assert (whole.step, whole.steps_after) == (5, 0)
    assert cut.step + cut.steps_after == 5
    assert f"{cut.steps_after} later steps of the log are not in these weights" in as_text(weights_text(cut))
    assert "later" not in as_text(weights_text(whole))
