"""The GitHub Action: its steps run in order, as GitHub's runner runs them, and find the planted bug."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
"""How GitHub starts `shell: bash`."""
STUB = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "$CALLS"
case " $* " in *" $FAILS "*) exit 1 ;; esac
"""


@dataclass
class Runner:
    """Runs the steps of a composite action. It knows the few expressions that action.yml uses."""

    folder: Path
    inputs: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    printed: str = ""
    code: int = 0

    def __post_init__(self) -> None:
        assert set(self.inputs) <= set(ACTION["inputs"])
        self.inputs = {name: each["default"] for name, each in ACTION["inputs"].items()} | self.inputs

    def __call__(self) -> int:
        for number, step in enumerate(ACTION["runs"]["steps"]):
            if self.is_wanted(step.get("if", "success()")):
                self.ran.append(step["name"])
                if "run" in step:
                    self.run(step, self.folder / f"output{number}")
        return self.code

    def run(self, step: dict, output: Path) -> None:
        own = {name: self.filled(text) for name, text in step.get("env", {}).items()}
        files = {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(output)}
        output.write_text("")
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in the text of a script could run as code"
        script = self.folder / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            [*BASH, str(script)],
            cwd=ROOT,
            env={**os.environ, "PATH": path_with_python(), **self.environment, **files, **own},
            capture_output=True,
            text=True,
        )
        self.printed += done.stdout + done.stderr
        self.outputs[step.get("id", "")] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        self.code = self.code or done.returncode

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: self.value(found[1]), text)

    def value(self, name: str) -> str:
        kind, _, rest = name.partition(".")
        if kind == "inputs":
            return self.inputs[rest]
        step, _, output = rest.partition(".outputs.")
        assert kind == "steps"
        return self.outputs.get(step, {}).get(output, "")

    def is_wanted(self, condition: str) -> bool:
        """GitHub adds `success() &&` to a condition that asks for no status."""
        text = condition if re.search(r"\b(always|success)\(\)", condition) else f"success() && ({condition})"
        text = re.sub(r"\b(?:inputs|steps)\.[\w.-]+", lambda found: repr(self.value(found[0])), text)
        text = text.replace("&&", " and ").replace("||", " or ")
        text = text.replace("always()", "True").replace("success()", str(self.code == 0))
        return bool(eval(text, {"__builtins__": {}}))


def path_with_python() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture
def stubbed(tmp_path: Path):
    """A function that runs the action with a `python` that only notes its arguments."""
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    calls = tmp_path / "calls"

    def run(fails: str = "nothing", **inputs: str) -> tuple[Runner, list[str]]:
        path = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "CALLS": str(calls), "FAILS": fails}
        runner = Runner(tmp_path, {"sarif": str(tmp_path / "sarif"), **inputs}, environment)
        runner()
        return runner, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_the_planted_bug_of_an_example_is_found_and_fails_the_job(tmp_path):
    sarif = tmp_path / "sarif"
    action = Runner(tmp_path, {"script": "examples/house_prices.py", "torch": "", "sarif": str(sarif), "steps": "6"})
    assert action() == 1, action.printed
    (result,) = json.loads((sarif / "watch.sarif").read_text())["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("broadcast-loss", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "examples/house_prices.py"
    line = (ROOT / "examples" / "house_prices.py").read_text().splitlines()[place["region"]["startLine"] - 1]
    assert "- target" in line


def test_a_clean_example_passes(tmp_path):
    sarif = tmp_path / "sarif"
    action = Runner(tmp_path, {"recipe": "examples/reviews.py", "ways": "check", "torch": "", "sarif": str(sarif)})
    assert action() == 0, action.printed
    assert json.loads((sarif / "check.sarif").read_text())["runs"][0]["results"] == []


def test_every_input_reaches_its_command(stubbed, tmp_path):
    action, calls = stubbed(
        recipe="train.py:gpt", knobs="layers=2 lr=1e-3", on="8xh100-sxm", budget="memory=76GiB days=14",
        script="my loop.py", args="--lr 1e-3 *", steps="7", allow="kept-losses input-ignored", upload="true",
    )  # fmt: skip
    sarif = tmp_path / "sarif"
    allowed = "--allow kept-losses --allow input-ignored"
    assert calls == [
        "-m pip install --quiet torch==2.13.0",
        f"-m pip install --quiet {ROOT}",
        "-m surefoot plan train.py:gpt layers=2 lr=1e-3 --on 8xh100-sxm --budget memory=76GiB days=14 --ci",
        f"-m surefoot check train.py:gpt layers=2 lr=1e-3 {allowed} --sarif {sarif}/check.sarif",
        f"-m surefoot watch my loop.py --steps 7 {allowed} --sarif {sarif}/watch.sarif -- --lr 1e-3 *",
    ]
    assert action.code == 0
    assert action.ran[-1] == "Show the findings beside the code"


def test_a_recipe_alone_is_planned_and_checked_and_a_script_alone_watched(stubbed):
    action, calls = stubbed(recipe="gpt", torch="")
    assert [call.split()[2] for call in calls] == ["plan", "check"]
    assert calls[0] == "-m surefoot plan gpt"  # without GPUs or a budget there is nothing to exceed
    _, calls = stubbed(script="train.py", torch="", steps="")
    assert calls[2:] == [f"-m surefoot watch train.py --sarif {action.inputs['sarif']}/watch.sarif --"]


def test_a_plan_over_its_budget_fails_the_job_and_the_checks_still_look(stubbed):
    action, calls = stubbed("plan", recipe="gpt", torch="", upload="true")
    assert action.code == 1
    assert [call.split()[2] for call in calls] == ["plan", "check"]
    assert action.ran[-1] == "Show the findings beside the code"


def test_nothing_runs_after_a_failed_installation(stubbed):
    action, calls = stubbed("pip", recipe="gpt")
    assert (action.code, action.ran, len(calls)) == (1, ["Install surefoot"], 1)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "nothing to do"),
        ({"recipe": "gpt", "ways": "watch"}, "nothing to do"),
        ({"recipe": "gpt", "ways": "check chekc"}, "no way 'chekc'"),
    ],
)
def test_what_cannot_be_done_is_said(stubbed, inputs: dict[str, str], said: str):
    action, calls = stubbed(torch="", **inputs)
    assert (action.code, calls) == (2, [])
    assert said in action.printed


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", ROOT / "action.yml"),
        *(("vendor.github-workflows", file) for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_github_accepts_the_file(schema: str, file: Path):
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    command = ["-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def loose_uses(text: str) -> list[str]:
    """The actions of others without the commit and, in a comment, its version. A tag can be moved to other code."""
    named = list(used(yaml.safe_load(text)))
    return [
        each
        for each in named
        if not re.search(rf"{re.escape(each)} +# v\d+\.\d+\.\d+$", text, re.M) or not PINNED(each)
    ]


PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}").fullmatch


def used(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from (each for key, each in tree.items() if key == "uses")
    if isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from used(each)


@pytest.mark.parametrize(
    "file", [ROOT / "action.yml", *sorted((ROOT / ".github").rglob("*.y*ml"))], ids=lambda f: f.name
)
def test_actions_of_others_are_named_by_commit(file: Path):
    assert loose_uses(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("word", ["v4", "main", "11bd719", "11d5960a326750d5838078e36cf38b85af677262"])
def test_a_tag_a_branch_and_a_short_hash_are_found(word: str):
    assert loose_uses(f"    steps:\n      - uses: actions/checkout@{word}\n") == [f"actions/checkout@{word}"]


def test_every_night_all_tests_run():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["everything"]
    assert job["steps"][-1]["run"] == "bash .ci/run --everything"
    assert workflow[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    assert job["timeout-minutes"] < 360  # where GitHub ends a job
    ahead = workflow["jobs"]["torch-nightly"]
    assert ahead["continue-on-error"] is True
    assert ahead["steps"][-1]["run"] == "pytest -m quick"
    assert any("--pre torch" in step.get("run", "") for step in ahead["steps"])


def test_the_quick_tier_runs_on_every_system_with_the_newest_torch_and_on_linux_with_older_ones():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["quick"]
    assert job["steps"][-1]["run"] == "pytest -m quick"
    runs = {(each["system"], each["torch"], each["python"]) for each in job["strategy"]["matrix"]["include"]}
    assert {system for system, torch, _ in runs if not torch} == {"ubuntu-latest", "macos-latest", "windows-latest"}
    linux = {(torch, python) for system, torch, python in runs if system == "ubuntu-latest"}
    assert {torch for torch, _ in linux} >= {"2.10.*", "2.12.*", "2.15.*"}
    assert {python for _, python in linux} >= {"3.10", "3.13"}
