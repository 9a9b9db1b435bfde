"""How a command ends when a recipe raises: the user's own lines, the error, and what surefoot was doing."""

import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.cli import main as cli
from tests.command_line import process as surefoot
from tests.raising import __file__ as RAISING

DOING = {
    "recipe": "called the recipe's function",
    "model": "built the recipe's model: model()",
    "data": "made the recipe's data: data()",
    "loss": "computed the recipe's loss: loss(model, batch)",
    "forward": "computed the recipe's loss: loss(model, batch)",
    "optimizer": "built the step",
    "schedule": "asked the recipe's schedule",
    "collate": "joined samples into a batch",
    "sample": "read ",
    "worker": "read ",
}
COMMANDS = {
    "plan": (),
    "check": (),
    "train": ("--no-plan", "--run", "run"),
    "profile": ("--steps", "1"),
    "fit": ("--fit", "--budget", "memory=1GiB"),
}


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch):
    """Tests raise what goes wrong in a check; a user does not."""
    monkeypatch.delenv("SUREFOOT_RAISE", raising=False)


@pytest.fixture
def run_command(monkeypatch, capsys, tmp_path):
    """`run_command("plan", "x.py")`: the exit code and what was written to stderr."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["surefoot", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, capsys.readouterr().err

    return run


CASES = [("plan", where) for where in DOING if where != "worker"]
CASES += [(command, where) for command in COMMANDS if command != "plan" for where in ("model", "loss")]


@pytest.mark.parametrize(("command", "where"), [*CASES, ("train", "worker")])
def test_the_lines_are_the_users_own(run_command, command, where):
    name, options = ("plan" if command == "fit" else command), COMMANDS[command]
    code, said = run_command(name, RAISING, f"where={where}", *options)
    assert code == 1
    assert "OwnError: raised in" in said
    files = [line.split('"')[1] for line in said.splitlines() if line.startswith("  File ")]
    assert files
    assert set(files) == {RAISING}
    assert f"Your code raised this while surefoot {DOING[where]}" in said
    assert said.rstrip().endswith("SUREFOOT_RAISE=1 shows the whole traceback.")


def test_a_real_process_says_the_same(tmp_path):
    done = surefoot("plan", RAISING, "where=loss", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "/surefoot/" not in done.stderr
    assert "site-packages" not in done.stderr


def test_everything_is_shown_to_those_who_ask(tmp_path, monkeypatch):
    monkeypatch.setenv("SUREFOOT_RAISE", "1")
    done = surefoot("plan", RAISING, "where=loss", cwd=tmp_path)
    assert done.returncode == 1
    assert "surefoot/step.py" in done.stderr
    assert "Traceback" not in surefoot("plan", "no_such_recipe").stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = (\n", ['r.py", line 1', "SyntaxError: '(' was never closed"]),
        ("x = 1\ny = = 2\n", ['r.py", line 2', "y = = 2", "SyntaxError: invalid syntax"]),
        ("x = 1\n1 / 0\n", ['r.py", line 2, in <module>', "ZeroDivisionError", "imported the recipe's file"]),
        ("import no_such_module\n", ['r.py", line 1, in <module>', "ModuleNotFoundError: No module named"]),
        ("import helper\n", ['r.py", line 1', 'helper.py", line 1', "NameError"]),
        ("raise KeyError('a') from ValueError('b')\n", ["KeyError: 'a'"]),
        (
            "try:\n    1 / 0\nexcept Exception:\n    {}['a']\n",
            ["ZeroDivisionError", "During handling", "KeyError: 'a'"],
        ),
        ("def f(): f()\nf()\n", ["Previous line repeated", "RecursionError"]),
    ],
)
def test_a_file_that_cannot_be_imported_shows_its_lines(run_command, tmp_path, source, said):
    (tmp_path / "r.py").write_text(f"{source}def mine() -> 'Recipe': ...\n")
    (tmp_path / "helper.py").write_text("undefined\n")
    code, told = run_command("plan", "r.py")
    assert code == 1
    assert [each for each in said if each not in told] == []
    assert "importlib" not in told
    assert "/surefoot/" not in told


def test_a_file_that_is_no_utf_8_is_a_syntax_error_of_the_user(run_command, tmp_path):
    (tmp_path / "r.py").write_bytes(b"x = '\xff'\n")
    code, told = run_command("plan", "r.py")
    assert code == 1
    assert "SyntaxError" in told
    assert "r.py" in told


def test_an_error_without_a_line_of_the_users_is_a_bug_of_ours(run_command, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise IndexError("of ours")

    monkeypatch.setattr("surefoot.recipe.load.load_recipe", broken)
    monkeypatch.setattr("tests.test_cli_errors.__file__", "", raising=False)
    broken.__code__ = broken.__code__.replace(co_filename=str(Path(cli.__file__).parent / "load.py"))
    code, told = run_command("plan", "regression")
    assert code == 1
    assert "IndexError: of ours" in told
    assert "cli/plan.py" in told
    assert told.rstrip().endswith("a bug in surefoot. Please report it.")


def test_what_torch_raises_in_a_step_is_no_bug_of_ours(run_command, tmp_path):
    """A loss without a graph: torch raises in backward, which surefoot calls; no line of the user's is there."""
    (tmp_path / "r.py").write_text(
        Path(RAISING).read_text().replace("model(batch).square().mean()", "model(batch).square().mean().detach()")
    )
    code, told = run_command("plan", "r.py:recipe")
    assert code == 1
    assert told.startswith("RuntimeError: element 0 of tensors does not require grad")
    assert "raised while surefoot computed the gradients of the recipe's loss" in told


def test_a_path_that_no_file_system_takes_is_one_line(run_command):
    code, told = run_command("plan", "x" * 5000 + ".py")
    assert code in (1, 2)
    assert "Traceback" not in told
    assert "File name too long" in told


def test_a_script_that_raises_under_watch_shows_its_own_lines(tmp_path):
    (tmp_path / "train.py").write_text("def f():\n    raise ValueError('mine')\nf()\n")
    done = surefoot("watch", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "runpy" not in done.stderr
    assert "/surefoot/" not in done.stderr


def test_a_failed_plan_is_told_with_the_first_step(tmp_path):
    text = (
        Path(RAISING)
        .read_text()
        .replace("return self.layer(x)", "return self.layer(x) if x.data_ptr() else fail('a plan')")
    )
    (tmp_path / "r.py").write_text(text)
    done = surefoot("train", "r.py:recipe", "max_steps=1", "--run", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "planning failed, so the run has no prediction: " in done.stdout.split("step 1/1")[0]


def test_python_callers_get_the_error_itself():
    code = f"import surefoot\ntry:\n    surefoot.plan(surefoot.load_recipe({RAISING!r}, ['where=loss']))\n"
    code += "except Exception as error:\n    print(type(error).__name__, error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "OwnError raised in loss"
