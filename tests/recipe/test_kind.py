"""A recipe, a script and a notebook are told apart by their source, and a script is never executed as a recipe."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import RecipeError
from surefoot.recipe.builtin import builtin_recipes
from surefoot.recipe.kind import kind_of
from surefoot.recipe.load import load_recipe

ROOT = Path(__file__).parents[2]
RECIPE = "from surefoot import Recipe\ndef mine() -> Recipe: ...\n"
SCRIPT = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (RECIPE, "recipe"),
        (RECIPE + "if __name__ == '__main__':\n    print(mine())\n", "recipe"),
        ("import surefoot\ndef mine() -> surefoot.Recipe: ...\n", "recipe"),
        ("import surefoot as sf\ndef mine() -> 'sf.Recipe': ...\n", "recipe"),
        ("from surefoot import Recipe as R\ndef mine() -> R: ...\n", "recipe"),
        ("try:\n    def mine() -> 'Recipe': ...\nexcept ImportError:\n    pass\n", "recipe"),
        ("class Recipe: ...\ndef soup() -> Recipe: ...\nprint(soup())\n", "script"),
        ("def main():\n    def mine() -> Recipe: ...\nmain()\n", "script"),
        ("def main(): ...\nif __name__ == '__main__':\n    main()\n", "script"),
        ("def main(): ...\nresult = main()\n", "script"),
        ("import lightning\ntrainer = lightning.Trainer()\nlosses = trainer.fit(None)\n", "script"),
        ("for step in range(3):\n    pass\n", "script"),
        ("with open('log') as file:\n    print(file)\n", "script"),
        ("", "neither"),
        ('"""Words."""\nimport logging\nLOG = logging.getLogger()\nclass Net: ...\n', "neither"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n", "neither"),
        ("model: gpt\nlr: 1\n", "neither"),
        ("this is no Python\n", "neither"),
    ],
)
def test_the_source_says_what_a_file_is(source: str, kind: str, tmp_path: Path):
    path = tmp_path / "file.py"
    path.write_text(source)
    assert kind_of(str(path)) == kind


def test_names_that_are_no_file(tmp_path: Path):
    for name in (*builtin_recipes(), "package.module:function"):
        assert kind_of(name) == "recipe"
    for name in ("gtp", "missing.py", "missing.ipynb", "missing.py:mine", str(tmp_path), "\0.py", "x" * 5000, ":", ""):
        assert kind_of(name) == "neither"
    (tmp_path / "train.ipynb").write_text("{}")
    assert kind_of(str(tmp_path / "train.ipynb")) == "notebook"
    (tmp_path / "weights.bin").write_text("print()")
    assert kind_of(str(tmp_path / "weights.bin")) == "neither"


def test_a_target_that_names_a_function_of_the_file_is_a_recipe(tmp_path: Path):
    path = tmp_path / "both.py"
    path.write_text(SCRIPT + "def mine(): ...\n")
    assert (kind_of(f"{path}:mine"), kind_of(f"{path}:other"), kind_of(str(path))) == ("recipe", "script", "script")


@given(st.one_of(st.text(), st.text().map("{}.py".format), st.text().map("a.py:{}".format)))
def test_any_target_has_a_kind(target: str):
    assert kind_of(target) in ("recipe", "script", "notebook", "neither")


@given(st.one_of(st.binary(), st.text(alphabet="()[]:\n =.,'\"#%!abcifdef \\\\@0", max_size=60).map(str.encode)))
def test_any_content_has_a_kind(content: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.py"
        path.write_bytes(content)
        assert kind_of(str(path)) in ("recipe", "script", "neither")


def test_deep_nesting_has_a_kind(tmp_path: Path):
    path = tmp_path / "deep.py"
    path.write_text("(" * 100_000)
    assert kind_of(str(path)) == "neither"
    path.write_text("x = 1\n" + "if x:\n    print(x)\n" + "elif x:\n    print(x)\n" * 300)
    assert kind_of(str(path)) == "script"


def test_recipes_and_scripts_of_this_repository_are_told_apart():
    examples = sorted((ROOT / "examples").glob("*.py"))
    for path in [*examples, *sorted((ROOT / "src/surefoot/recipes").glob("[a-z]*.py"))]:
        wanted = "recipe" if "-> Recipe" in path.read_text() else "script"
        assert kind_of(str(path)) == wanted, path
    programs = [path for folder in ("loops", "watched") for path in (ROOT / "bench" / folder).glob("*.py")]
    programs += [*(ROOT / "bench").glob("*.py"), *(ROOT / "corpus").glob("*/**/*.py")]
    for path in programs:
        text = path.read_text()
        if "-> Recipe" not in text and ("__main__" in text or "optimizer.step()\n" in text):
            assert kind_of(str(path)) != "recipe", path
            assert kind_of(str(path)) == "script" or "\nif __name__" not in text, path


def test_the_kind_is_known_without_torch():
    code = "import sys; from surefoot.recipe.kind import kind_of; kind_of('gpt'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "300"}
    typed = [sys.executable, "-m", "surefoot", *words]
    return subprocess.run(typed, capture_output=True, text=True, env=environment, cwd=cwd)


@pytest.mark.parametrize("name", ["check", "train", "profile"])
def test_a_script_is_not_executed_in_place_of_a_recipe(name: str, tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command(name, "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "train.py is a script, not a recipe" in done.stderr
    assert "`surefoot watch train.py`" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_help_of_a_command_does_not_execute_a_script(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command("plan", "train.py", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("target", ["train.py", "train.py:missing", "module.py", "train.ipynb", "script"])
def test_nothing_that_holds_no_recipe_is_executed(target: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "script").write_text(SCRIPT)
    (tmp_path / "module.py").write_text("import builtins\nFILE = builtins.open('ran', 'w')\n")
    (tmp_path / "train.ipynb").write_text("{}")
    with pytest.raises(RecipeError):
        load_recipe(target)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_python_does_not_understand_is_shown_as_python_shows_it(tmp_path: Path):
    path = tmp_path / "broken.py"
    path.write_text("def mine() -> Recipe\n")
    with pytest.raises(SyntaxError):
        load_recipe(str(path))
