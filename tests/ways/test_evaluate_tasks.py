"""evaluate --tasks: the tasks of lm-evaluation-harness, from local files, without a network."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import MissingPackage, RunError
from surefoot.exports import harness_tasks
from surefoot.recipe.load import load_recipe

WORDS = ["layers=1", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=64"]
TASK = """
task: letters
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """Questions of the kind `aaaa`, of which a model of `aaaa` knows the answer."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = ({"question": "a" * (3 + each), "choices": ["z", "a"], "answer": 1} for each in range(5))
    (folder / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "letters.yaml").write_text(TASK.format(data=folder / "letters.jsonl"))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    text = tmp_path_factory.mktemp("text")
    (text / "a.txt").write_text("a" * 4000)
    recipe = load_recipe("gpt", [*WORDS, "max_steps=30", "lr=0.01", f"corpus={text}"])
    return surefoot.train(recipe, path=str(tmp_path_factory.mktemp("gpt") / "run"))


def test_a_run_and_its_folder_have_the_score_of_the_harness(run, tasks, tmp_path):
    pytest.importorskip("lm_eval", reason="pip install 'surefoot[tasks]'")
    made = surefoot.evaluate(run.path, tasks=str(tasks))
    (score,) = made.scores
    assert (score.data, score.samples, score.metrics) == ("letters", 5, {"acc": 1.0})
    (folder,) = surefoot.export(run.path, to=str(tmp_path), formats=["hf"]).formats
    assert surefoot.evaluate(folder.path, tasks=str(tasks / "letters.yaml")).scores == made.scores
    said = CliRunner().invoke(app, ["evaluate", folder.path, "--tasks", str(tasks)])
    assert said.exit_code == 0, said.output
    assert "GPT2LMHeadModel" in said.output
    assert "letters" in said.output


def test_a_task_that_would_download_is_refused(run, tmp_path):
    pytest.importorskip("lm_eval", reason="pip install 'surefoot[tasks]'")
    (tmp_path / "hub.yaml").write_text("task: hub\ndataset_path: nobody/nothing\noutput_type: generate_until\n")
    with pytest.raises(RunError, match=r"lm_eval cannot run .*; surefoot downloads nothing, so a task must name local"):
        surefoot.evaluate(run.path, tasks=str(tmp_path))


def test_what_is_no_task_or_no_model_of_text_is_refused(run, tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(harness_tasks, "_harness", lambda: None)
    (tmp_path / "task.txt").write_text("")
    for path, said in (
        (tmp_path / "absent", "there is no file or folder"),
        (tmp_path, "holds no .yaml file"),
        (tmp_path / "task.txt", "is no .yaml file"),
    ):
        with pytest.raises(RunError, match=f"{said}.*; name a task in YAML, or a folder of them"):
            surefoot.evaluate(run.path, tasks=str(path))
    with pytest.raises(RunError, match="tasks bring their own data; leave out --data"):
        surefoot.evaluate(run.path, tasks=str(tasks), data="train")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match="without torchrun"):
        surefoot.evaluate(run.path, tasks=str(tasks))
    monkeypatch.delenv("WORLD_SIZE")
    other = surefoot.train(load_recipe("regression", ["samples=64", "max_steps=2"]), path=str(tmp_path / "other"))
    with pytest.raises(RunError, match="cannot become a Hugging Face folder: it is neither a model of transformers"):
        surefoot.evaluate(other.path, tasks=str(tasks))


def test_without_the_harness_the_command_says_what_to_install(run, tasks, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(MissingPackage, match=r"--tasks needs lm_eval: pip install 'surefoot\[tasks\]'"):
        surefoot.evaluate(run.path, tasks=str(tasks))
