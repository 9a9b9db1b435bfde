"""train: the loss falls, the run is kept, the same seed gives the same bits, and NaN is never hidden."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.errors import NonFinite, RecipeError, RunError
from tests.conftest import SMALL


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMALL)
def test_the_loss_falls(name: str, small_recipe, tmp_path):
    run = surefoot.train(small_recipe(name, "max_steps=40"), path=str(tmp_path / "run"))
    losses = [row.loss for row in run.rows()]
    assert len(losses) == run.steps == 40
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_a_run_directory_holds_the_recipe_the_settings_the_log_and_the_weights(small_recipe, tmp_path):
    run = surefoot.train(small_recipe("gpt", "max_steps=2"), path=str(tmp_path / "run"))
    assert sorted(path.name for path in Path(run.path).iterdir()) == [
        "checkpoints", "lock", "log.jsonl", "model.safetensors", "recipe.py", "run.json",
    ]  # fmt: skip
    assert surefoot.read_run(run.path) == run
    assert "def gpt(" in run.source.read_text()
    rows = [json.loads(line) for line in run.log.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["lr"] < rows[1]["lr"]  # warming up
    assert run.tokens == sum(row["tokens"] for row in rows) == 512


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(small_recipe, tmp_path):
    def losses(name: str, seed: int) -> list[str]:
        run = surefoot.train(small_recipe("sentiment", "max_steps=5", f"seed={seed}"), path=str(tmp_path / name))
        return [row.loss.hex() for row in run.rows()]

    assert losses("a", 0) == losses("b", 0) != losses("c", 1)


def test_max_tokens_ends_a_run_too(small_recipe):
    assert small_recipe("gpt", "max_tokens=600").steps() == 3  # 256 tokens per step, rounded up
    assert dataclasses.replace(small_recipe("gpt", "max_tokens=600"), max_steps=2).steps() == 2


def test_a_recipe_without_an_end_is_refused(small_recipe, tmp_path):
    recipe = dataclasses.replace(small_recipe("cruncher"), max_steps=None)
    with pytest.raises(RecipeError, match="set max_steps, max_tokens or max_epochs"):
        surefoot.train(recipe, path=str(tmp_path / "run"))


def test_a_directory_that_holds_something_is_left_alone(small_recipe, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        surefoot.train(small_recipe("regression"), path=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_two_runs_in_one_second_get_two_directories(small_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {surefoot.train(small_recipe("regression", "max_steps=1")).path for _ in range(3)}
    assert len(paths) == 3
    assert all(path.startswith("runs/regression-") for path in paths)


def test_nan_stops_the_run_and_is_written_down(small_recipe, tmp_path):
    recipe = small_recipe("cruncher", "max_steps=5")
    calls = 0

    def loss(model, batch):
        nonlocal calls
        calls += 1
        total, count = recipe.loss(model, batch)
        return (total * float("nan") if calls == 3 else total), count

    with pytest.raises(NonFinite, match="the loss of step 3 is nan"):
        surefoot.train(dataclasses.replace(recipe, loss=loss), path=str(tmp_path / "run"))
    run = surefoot.read_run(tmp_path / "run")
    assert run.status == "failed"
    assert "step 3 is nan" in run.reason
    assert [row.loss == row.loss for row in run.rows()] == [True, True, False]
    assert not run.weights.exists()
    with pytest.raises(RunError, match="is failed, not finished"):
        surefoot.export(run.path)


def test_an_interrupted_run_says_so(small_recipe, tmp_path):
    def interrupt(run, row):
        if row.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        surefoot.train(small_recipe("regression"), path=str(tmp_path / "run"), tell=interrupt)
    assert surefoot.read_run(tmp_path / "run").status == "interrupted"


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_every_precision_trains_and_exports(precision: str, small_recipe, tmp_path):
    run = surefoot.train(small_recipe("gpt", "max_steps=10", f"precision={precision}"), path=str(tmp_path / "run"))
    assert run.last_loss < run.first_loss
    from safetensors.torch import load_file

    kept = {tensor.dtype for tensor in load_file(run.weights).values()}
    assert kept == {torch.bfloat16 if precision == "bf16-true" else torch.float32}
    assert surefoot.export(run.path).weights_difference == 0
