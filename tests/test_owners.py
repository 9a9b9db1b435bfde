"""Whose a file is, by its path, and who is blamed for an error: also where surefoot itself is installed."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

import surefoot
from surefoot.source.owners import OWN, name_as_users, owner, package_of

SITE = "/home/me/project/.venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/project/train.py", "user"),
        ("train.py", "user"),
        ("/home/me/my-site-packages-demo/train.py", "user"),
        ("/home/me/app.pyz/train.py", "user"),
        (f"{sysconfig.get_path('scripts')}/train.py", "user"),
        (f"{sysconfig.get_path('scripts')}/surefoot", "python"),
        (f"{SITE}/torch/nn/modules/linear.py", "installed"),
        (f"{SITE.replace('lib', 'lib64', 1)}/torch/nn/modules/linear.py", "installed"),
        (f"{SITE}/one_file.py", "installed"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "installed"),
        ("/usr/local/lib/python3.12/dist-packages/lightning/fabric.py", "installed"),
        ("/home/me/.local/lib/python3.12/site-packages/transformers/trainer.py", "installed"),
        (f"{SITE}/thing.egg/thing/code.py", "installed"),
        ("C:/Python312/Lib/site-packages/torch/serialization.py", "installed"),
        ("C:/Python312/Lib/threading.py", "python"),
        ("C:/Python312/python312.zip/threading.py", "python"),
        ("/usr/lib/python3.9/threading.py", "python"),
        ("/usr/lib64/python3.13/threading.py", "python"),
        (os.__file__, "python"),
        ("<frozen runpy>", "nobody"),
        ("<string>", "nobody"),
        (surefoot.__file__, "surefoot"),
        (f"{OWN}cli/errors.py", "surefoot"),
        (f"{SITE}/surefoot/cli/errors.py", "installed"),
        (f"{OWN.rstrip(os.sep)}_recipes/mine.py", "user" if "site-packages" not in OWN else "installed"),
    ],
)
def test_whose_a_file_is(file: str, expected: str):
    assert owner(file) == expected


def test_a_package_that_a_command_names_is_the_users_wherever_it_is_installed():
    assert owner(f"{SITE}/owners_project/models.py") == "installed"
    name_as_users("owners_project")
    assert owner(f"{SITE}/owners_project/models.py") == "user"
    assert owner(f"{SITE}/torch/__init__.py") == "installed"
    name_as_users("surefoot")
    assert owner(f"{OWN}step.py") == "surefoot"


def test_the_name_of_an_installed_package():
    assert package_of(f"{SITE}/torch/nn/functional.py") == "torch"
    assert package_of(f"{SITE}/one_file.py") == "one_file"
    assert package_of("/home/me/project/train.py") == ""


# ------------------------------------------------------------------------------------------- installed


@pytest.mark.skipif("SUREFOOT_INSTALLED" not in os.environ, reason="`.ci/fresh` asks for it")
def test_it_is_the_wheel_that_is_tested():
    assert package_of(surefoot.__file__) == "surefoot"
    assert Path(sys.prefix) in Path(surefoot.__file__).parents


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `site-packages` that holds surefoot: that of this environment, or a copy of the source tree."""
    own = Path(OWN)
    if own.parent.name in ("site-packages", "dist-packages"):
        return own.parent
    site = tmp_path_factory.mktemp("env") / "lib" / "python3" / "site-packages"
    copytree(own, site / "surefoot", ignore=ignore_patterns("__pycache__"))
    return site


@pytest.fixture(scope="module")
def commands(packages: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs commands of the installed surefoot."""
    settings = {name: value for name, value in os.environ.items() if name != "SUREFOOT_RAISE"}
    settings |= {"PYTHONPATH": str(packages), "COLUMNS": "300", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("commands.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def typed(commands: subprocess.Popen[str], tmp_path: Path):
    """`typed("plan", "r.py")`: the exit code and what the installed surefoot wrote to stderr, on one line."""
    (tmp_path / "r.py").write_text(RECIPE)
    (tmp_path / "broken.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "broken_recipe.py").write_text("x = 1\n1 / 0\ndef mine() -> 'Recipe': ...\n")
    (tmp_path / "out.txt").touch()

    def run(*words: str) -> tuple[int, str]:
        told = tmp_path / "stderr"
        commands.stdin.write(json.dumps({"words": words, "folder": str(tmp_path), "stderr": str(told)}) + "\n")
        commands.stdin.flush()
        return int(commands.stdout.readline()), " ".join(told.read_text().split())

    return run


RECIPE = """
import torch
from surefoot import Recipe
from torch.utils.data import TensorDataset

def loss(model, batch):
    return model(batch[0]).square().mean()

def small(width: int = 4, lr: float = 0.01, column: int = 0) -> Recipe:
    return Recipe(
        model=lambda: torch.nn.Linear(4, width),
        data=lambda: TensorDataset(torch.randn(8, 4)[:, column:]),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=2,
    )
"""
YOURS, OURS = "Your code raised this while surefoot", "it is a bug in surefoot"
WRONG = {
    ("plan", "no_such_recipe"): (2, "error: no recipe 'no_such_recipe'"),
    ("plan", "r.py", "wdth=8"): (2, "did you mean 'width'?"),
    ("train", "r.py", "lr=1e400"): (2, "error: knob lr='1e400' is inf; write a finite number"),
    ("train", "r.py", "--run", "out.txt"): (2, "error: out.txt is a file, not a directory; name another directory"),
    ("train", "r.py", "width=-4", "--run", "run"): (1, f"{YOURS} built the recipe's model: model()"),
    ("plan", "r.py", "column=1"): (1, f"{YOURS} computed the recipe's loss"),
    ("plan", "broken_recipe.py"): (1, f"{YOURS} imported the recipe's file"),
    ("watch", "broken.py"): (1, f"{YOURS} ran the script"),
    ("plan", "r.py", "--on", "h900"): (2, "error: no datasheet for 'h900'"),
    ("export", "out.txt"): (2, "error: out.txt is not a run"),
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_command_line_is_the_users(typed, words):
    code, expected = WRONG[words]
    found, told = typed(*words)
    assert (found, expected in told) == (code, True), told
    assert "bug in surefoot" not in told
    assert "/surefoot/" not in told
    assert "planning failed" not in told


@pytest.fixture
def plant(packages: Path) -> Iterator:
    """`plant("step.py", "def _loss(")`: a function of surefoot raises; afterwards its file is as it was."""
    changed = {}

    def plant(name: str, function: str) -> None:
        file = packages / "surefoot" / name
        changed[file] = file.read_text(encoding="utf-8")
        head, mark, body = changed[file].partition(function)
        opened, colon, rest = body.partition(":\n")
        indent = " " * (len(head) - len(head.rstrip(" ")) + 4)
        file.write_text(f"{head}{mark}{opened}{colon}{indent}{{}}['planted']\n{rest}", encoding="utf-8")

    yield plant
    for file, text in changed.items():
        file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "function"),
    [("planning/fake_step.py", "def "), ("step.py", "def _update("), ("recipe/load.py", "def make_recipe(")],
)
def test_a_bug_inside_of_surefoot_is_surefoots(typed, plant, name, function):
    plant(name, function)
    code, told = typed("plan", "r.py")
    assert code == 1
    assert "KeyError: 'planted'" in told
    assert f"surefoot/{name}" in told
    assert told.endswith(f"{OURS}. Please report it.")
    assert "Your code" not in told


def test_a_bug_of_surefoot_inside_of_the_users_code_is_not_the_users(typed, plant, tmp_path):
    plant("techniques/schedule.py", "def warmup_cosine(")
    (tmp_path / "calls.py").write_text(
        f"from surefoot.techniques.schedule import warmup_cosine\nwarmup_cosine(warmup_steps=1)\n{RECIPE}"
    )
    code, told = typed("plan", "calls.py")
    assert code == 1
    assert "surefoot/techniques/schedule.py, line " in told
    assert YOURS not in told
    assert told.endswith(f"{OURS}. Please report it.")


def test_a_recipe_of_an_installed_package_is_the_users(typed, packages):
    project = packages / "owners_installed"
    project.mkdir()
    try:
        (project / "recipes.py").write_text(RECIPE)
        code, told = typed("plan", "owners_installed.recipes:small", "column=1")
    finally:
        for file in sorted(project.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        project.rmdir()
    assert code == 1
    assert "owners_installed/recipes.py" in told
    assert f"{YOURS} computed the recipe's loss" in told
    assert "batch" in told
