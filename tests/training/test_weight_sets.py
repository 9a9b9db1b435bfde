"""evaluate and init_from of sets of safetensors files: the checks of a single file, and those of the index."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError, RunError
from surefoot.recipe.load import load_recipe

WORDS = ["samples=64", "max_steps=3"]
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return surefoot.train(load_recipe("regression", WORDS), path=str(tmp_path_factory.mktemp("regression") / "run"))


@pytest.fixture
def folder(run, tmp_path) -> Path:
    """Two files and an index, one tensor each."""
    made, tensors = tmp_path / "set", load_file(run.weights)
    made.mkdir()
    places = dict(zip(sorted(tensors), (FIRST, SECOND), strict=True))
    for name, file in places.items():
        save_file({name: tensors[name]}, made / file, metadata={"format": "pt"})
    (made / INDEX).write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": places}))
    return made


def told(folder: Path) -> dict[str, str]:
    return json.loads((folder / INDEX).read_text())["weight_map"]


def rewrite(folder: Path, **places: str) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": told(folder) | places}))


def scores(path: Path | str) -> tuple:
    words = [] if (Path(path) / "run.json").exists() else WORDS
    return surefoot.evaluate(str(path), "regression" if words else None, knobs=words, data="train").scores


def test_a_set_has_the_scores_of_the_run_and_fills_a_new_model(run, folder, tmp_path):
    assert scores(folder) == scores(folder / INDEX) == scores(run.path)
    for path in (folder, folder / INDEX):
        recipe = load_recipe("regression", [*WORDS, f"init_from={path}"])
        begun = surefoot.train(recipe, path=str(tmp_path / path.name / "run"))
        assert begun.status == "finished"
    said = CliRunner().invoke(app, ["evaluate", str(folder), "regression", *WORDS, "--data", "train"])
    assert said.exit_code == 0, said.output


def test_one_file_of_a_set_asks_for_the_folder(folder):
    with pytest.raises(RunError, match="is one of a set of files; name their folder"):
        scores(folder / FIRST)


@pytest.mark.parametrize("name", ["../run/model.safetensors", "/etc/passwd", "inner/model.safetensors", "..", ""])
def test_an_index_that_names_a_file_elsewhere_is_refused(folder, name):
    (folder / "inner").mkdir()
    shutil.copy(folder / FIRST, folder / "inner" / "model.safetensors")
    rewrite(folder, **{next(iter(told(folder))): name})
    with pytest.raises(RunError, match=r"which is not a file beside it|does not hold it"):
        scores(folder)
    with pytest.raises(RecipeError, match=r"init_from: .*(which is not a file beside it|does not hold it)"):
        surefoot.train(load_recipe("regression", [*WORDS, f"init_from={folder}"]), path=str(folder / "run"))


def test_an_index_that_is_no_index_is_refused(folder):
    for text, said in (
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"weight_map": {}}', "is damaged: it names no tensor"),
        ('{"weight_map": {"a": 3}}', "which is not a file beside it"),
        ('{"weight_map": {"a": "absent.safetensors"}}', "names absent.safetensors, and .* does not hold it"),
    ):
        (folder / INDEX).write_text(text)
        with pytest.raises(RunError, match=said):
            scores(folder)


def test_files_that_do_not_hold_what_the_index_says_are_refused(folder):
    (a, first), (b, second) = told(folder).items()
    rewrite(folder, **{a: second, b: first})
    with pytest.raises(RunError, match=f"says that {a} is in {second}, which does not hold it; copy the set again"):
        scores(folder)
    rewrite(folder, **{a: first, b: second})
    save_file({**load_file(folder / first), **load_file(folder / second)}, folder / first)
    with pytest.raises(RunError, match=f"{first} holds {b}, which {INDEX} does not say; copy the set again"):
        scores(folder)


def test_a_cut_file_a_pickle_and_another_number_format_are_refused(folder):
    (name, first), _ = told(folder).items()
    file = folder / first
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(RunError, match=f"{first} is not a whole safetensors file"):
        scores(folder)
    torch.save({"a": torch.zeros(1)}, file)
    with pytest.raises(RunError, match=f"{first} is a pickle with another name"):
        scores(folder)
    file.write_bytes(whole)
    save_file({name: load_file(file)[name].double()}, file)
    with pytest.raises(RunError, match=f"{name} is F64 in the file and float32 in the model"):
        scores(folder)
