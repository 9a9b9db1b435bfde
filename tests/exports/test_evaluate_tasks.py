"""evaluate --tasks: the tasks of lm-evaluation-harness, from local files, without a network."""

import json
import os
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import MissingPackage, RunError
from surefoot.exports import harness_tasks, task_files
from surefoot.finetuning import template_limits
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
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
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
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
    (tmp_path / "hub.yaml").write_text("task: hub\ndataset_path: nobody/nothing\noutput_type: generate_until\n")
    with pytest.raises(RunError, match=r"lm_eval cannot run .*; surefoot downloads nothing, so a task must name local"):
        surefoot.evaluate(run.path, tasks=str(tmp_path), trust_run=True)


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
    with pytest.raises(MissingPackage, match=r"--tasks needs lm_eval: pip install lm_eval"):
        surefoot.evaluate(run.path, tasks=str(tasks))


# ------------------------------------------------------------------------------------------- tasks that lead to code

PLAIN = TASK.format(data="letters.jsonl")
DEEP = "task: deep\nmetadata: " + "[" * 100 + "]" * 100
LAUGHS = "".join(f"- &a{at + 1} [*a{at}, *a{at}, *a{at}]\n" for at in range(40))
LEADING = {
    "a function": (PLAIN + "process_docs: !function helper.f", "line 14 has the tag !function, by which"),
    "a function deep inside": (PLAIN + "metadata: {a: [{b: !function helper.f}]}", "has the tag !function"),
    "a function as a key": (PLAIN + "? !function helper.f\n: 1", "has the tag !function"),
    "a function as a task": ("task: !function helper.f", "line 1 has the tag !function"),
    "a class": ("task: x\nclass: !function helper.Task", "line 2 has the tag !function"),
    "an object": ("task: !!python/object/apply:os.mkdir [made]", "has the tag tag:yaml.org,2002:python/object/apply"),
    "a name": ("task: x\nclass: helper.Task", "has the field 'class'; known as data: aggregate_metric_list, "),
    "a data set of its own": (PLAIN + "custom_dataset: helper.f", "has the field 'custom_dataset'"),
    "a prompt in a file": (PLAIN + "use_prompt: other.yaml:name", "has the field 'use_prompt'"),
    "unsafe code": (PLAIN + "unsafe_code: true", "has the field 'unsafe_code'"),
    "a script as data": ("task: x\ndataset_path: ./script.py", "has dataset_path './script.py'; known as data: csv, "),
    "a folder as data": ("task: x\ndataset_path: folder", "has dataset_path 'folder'"),
    "pickled tables": ("task: x\ndataset_path: pandas", "has dataset_path 'pandas'"),
    "data that is trusted": ("task: x\ndataset_kwargs: {trust_remote_code: true}", "dataset_kwargs 'trust_remote"),
    "data from elsewhere": (TASK.format(data="https://example.org/x"), "must be paths of local files"),
    "data through others": (TASK.format(data="simplecache::x"), "must be paths of local files"),
    "a metric that is a script": (PLAIN + "  - metric: ./script.py", "has the metric './script.py'; known"),
    "a metric of a library": (PLAIN + "  - {metric: acc, hf_evaluate: true}", "harness's own metrics"),
    "a generation that is a script": (PLAIN + "generation_kwargs: {custom_generate: here, trust_remote_code: true}",
                                      "has the field of generation_kwargs 'custom_generate'"),
    "a task in a group": ("group: g\ntask:\n- task: x\n  dataset_path: ./script.py", "has dataset_path './script.py'"),
    "a group in a group": ("group: g\ntask:\n- group: h\n  task:\n  - {task: x, class: y}", "has the field 'class'"),
    "an include that has a function": ("include: hidden", "hidden, line 1 has the tag !function"),
    "an include in a group": ("group: g\ntask:\n- {task: x, include: [hidden]}", "hidden, line 1 has the tag"),
    "an include outside": ("include: ../outside.yaml", r"leads to .*outside\.yaml, outside of"),
    "an include by a link": ("include: link.yaml", r"leads to .*outside\.yaml, outside of"),
    "an include that is absent": ("include: nothing.yaml", "includes 'nothing.yaml', which is no file beside it"),
    "an include with a long name": ("include: " + "x" * 5000, "which is no file beside it"),
    "an include with a zero": ('include: "a\\0b"', "which is no file beside it"),
    "an include of itself": ("include: task.yaml\nclass: x", "has the field 'class'"),
    "a list in a list": (DEEP, "more than 50 deep"),
    "aliases of aliases": (f"task: x\nmetadata:\n- &a0 [x]\n{LAUGHS}dataset_path: *a40", "has dataset_path a list"),
    "a task of itself": ("&g\ngroup: g\ntask: [*g]\nclass: x", "has the field 'class'"),
    "no YAML": ("task: [", r"task\.yaml, line \d is not YAML"),
    "two documents": ("task: x\n---\ntask: y", "is not YAML"),
    "a very long one": ("# " + "x" * 2**22, "more than the 4.00 MiB that are read"),
}  # fmt: skip


@pytest.fixture
def leading(tmp_path, monkeypatch):
    """A folder of tasks, beside a helper that leaves a mark when it is imported. The harness cannot be loaded."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "helper.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    (folder / "hidden").write_text("process_docs: !function helper.f\n")
    (tmp_path / "outside.yaml").write_text("task: outside\n")
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    return folder


@pytest.mark.parametrize("what", LEADING)
def test_a_task_that_leads_to_code_is_refused_before_the_harness_is_loaded(leading, what):
    text, words = LEADING[what]
    (leading / "task.yaml").write_text(text)
    with pytest.raises(RunError, match=words) as refused:
        surefoot.evaluate("nowhere", tasks=str(leading / "task.yaml"))
    assert "add --trust-run" in str(refused.value) or "is not YAML" in str(refused.value)
    assert not (leading.parent / "made").exists()
    (leading / "link.yaml").unlink()
    with pytest.raises(RunError):
        surefoot.evaluate("nowhere", tasks=str(leading))
    with pytest.raises(MissingPackage):  # the next step: the harness
        surefoot.evaluate("nowhere", tasks=str(leading / "task.yaml"), trust_run=True)


def test_a_file_of_the_working_folder_is_not_included_instead(leading, tmp_path, monkeypatch):
    """lm_eval 0.4.9 looks there first."""
    (leading / "base.yaml").write_text(PLAIN)
    (leading / "task.yaml").write_text("include: base.yaml\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "base.yaml").write_text("process_docs: !function helper.f\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"leads to .*elsewhere/base\.yaml, outside of"):
        surefoot.evaluate("nowhere", tasks=str(leading / "task.yaml"))


def test_a_pipe_in_place_of_a_task_does_not_block(leading):
    (leading / "link.yaml").unlink()
    os.mkfifo(leading / "pipe.yaml")
    with pytest.raises(RunError, match="is a pipe, not a plain file"):
        surefoot.evaluate("nowhere", tasks=str(leading))


def test_a_link_to_itself_in_place_of_a_task_is_refused(leading):
    (leading / "link.yaml").unlink()
    (leading / "link.yaml").symlink_to("link.yaml")
    with pytest.raises(RunError, match=r"link\.yaml cannot be read"):
        surefoot.evaluate("nowhere", tasks=str(leading))


def test_plain_tasks_reach_the_harness(leading):
    (leading / "link.yaml").unlink()
    (leading / "hidden").write_text("metadata: {version: 1}\n")
    (leading / "base.yaml").write_text(PLAIN)
    (leading / "other.yaml").write_text("include: [base.yaml, hidden]\ntask: other\n")
    (leading / "group.yaml").write_text("group: all\ntask: [letters, {task: other, num_fewshot: 1}]\n")
    (leading / "settings.yaml").write_text("jobs: {anything: [1, 2]}\n")  # no task
    with pytest.raises(MissingPackage, match="--tasks needs lm_eval"):
        surefoot.evaluate("nowhere", tasks=str(leading))


# ------------------------------------------------------------------------------------------- by the harness itself

ESCAPES = "{{{{ cycler.__init__.__globals__.os.mkdir('{}') }}}}"


def with_question(tasks: Path, to: Path, template: str) -> str:
    text = TASK.format(data=tasks / "letters.jsonl").replace('"{{question}}"', f'"{template}"')
    to.write_text(text)
    return str(to)


def test_templates_of_a_task_reach_no_python_unless_it_is_trusted(run, tasks, tmp_path):
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
    task = with_question(tasks, tmp_path / "escapes.yaml", ESCAPES.format(tmp_path / "made"))
    with pytest.raises(RunError, match="lm_eval cannot run"):
        surefoot.evaluate(run.path, tasks=task)
    assert not (tmp_path / "made").exists()
    with pytest.raises(RunError, match="lm_eval cannot run"):  # it makes the folder twice
        surefoot.evaluate(run.path, tasks=task, trust_run=True)
    assert (tmp_path / "made").exists()


def test_a_template_of_a_task_that_never_ends_is_ended(run, tasks, tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
    monkeypatch.setattr(template_limits, "SECONDS", 0.5)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(RunError, match=r"the template '.*' runs for more than 0\.5 seconds in its line 1"):
        surefoot.evaluate(run.path, tasks=with_question(tasks, tmp_path / "loop.yaml", loop))


def test_a_function_runs_with_trust(run, tasks, tmp_path):
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
    (tmp_path / "helper.py").write_text("def f(doc):\n    return doc['question'] + 'a'\n")
    text = TASK.format(data=tasks / "letters.jsonl").replace('"{{question}}"', "!function helper.f")
    (tmp_path / "helped.yaml").write_text(text)
    (score,) = surefoot.evaluate(run.path, tasks=str(tmp_path / "helped.yaml"), trust_run=True).scores
    assert score.metrics == {"acc": 1.0}


def test_the_lists_are_of_this_harness():
    """The metrics that a task may name are the harness's own, and it knows every field."""
    pytest.importorskip("lm_eval", reason="pip install lm_eval")
    from lm_eval.api.registry import METRIC_REGISTRY
    from lm_eval.api.task import TaskConfig

    assert [name for name in task_files.METRICS if name not in METRIC_REGISTRY] == []
    groups = {"group", "group_alias", "aggregate_metric_list", "include"}
    assert task_files.FIELDS - groups <= {each.name for each in fields(TaskConfig)}
