"""What is imported when: the help is quick, records need no torch, and the directions of imports hold."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot

ROOT = Path(__file__).parent.parent


def imported_by(code: str, *, cwd: Path = ROOT) -> set[str]:
    """The modules that a fresh interpreter imports for a piece of code, by `-X importtime`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, cwd=cwd, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


CLI = "import sys; sys.argv = {argv!r}\nfrom surefoot.cli.main import main\ntry: main()\nexcept SystemExit: pass"


def test_importing_surefoot_imports_no_torch():
    assert "torch" not in imported_by("import surefoot")


def test_the_help_imports_no_torch():
    for argv in (["surefoot", "--help"], ["surefoot", "plan", "--help"], ["surefoot"]):
        assert "torch" not in imported_by(CLI.format(argv=argv))


def test_reading_and_reporting_a_run_imports_no_torch(small_recipe, tmp_path):
    surefoot.train(small_recipe("regression", "max_steps=3"), path=str(tmp_path / "run"))
    modules = imported_by(CLI.format(argv=["surefoot", "report", str(tmp_path / "run")]))
    assert "torch" not in modules
    assert "surefoot.reports.report" in modules


def test_this_proof_can_fail():
    assert "torch" in imported_by("import surefoot; surefoot.plan")


def test_the_help_is_quick():
    """Less than a fifth of the time of `import torch`.

    Seconds are those the processor worked, the best of three and interleaved: seconds on the wall also count
    what other programs of a shared machine do, and a slow machine is slow at both.
    """

    def seconds(*command: str) -> float:
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    pairs = [(seconds("-m", "surefoot", "--help"), seconds("-c", "import torch")) for _ in range(3)]
    help_seconds, torch_seconds = (min(each) for each in zip(*pairs, strict=True))
    assert help_seconds < 0.2 * torch_seconds, f"help {help_seconds:.2f} s, import torch {torch_seconds:.2f} s"


def test_the_public_words_exist_and_are_sorted_out():
    for word in surefoot.__all__:
        assert getattr(surefoot, word) is not None
    assert len(surefoot.__all__) == len(set(surefoot.__all__)) <= 25
    assert set(surefoot.__all__) <= set(dir(surefoot))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = surefoot.nothing


def test_watch_is_a_word_even_after_its_file_was_imported():
    import surefoot.watch

    assert callable(surefoot.watch)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    paths = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=paths, capture_output=True, text=True)


@pytest.fixture
def copy_of_the_project(tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_directions_of_imports_hold(copy_of_the_project: Path):
    done = lint_imports(copy_of_the_project)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("step.py", "import surefoot.meters.flops", "the step does not know that it is watched"),
        ("ways/train.py", "import surefoot.ways.plan", "ways never import each other"),
        ("ways/plan.py", "import surefoot.reports.plan", "a way returns a record"),
        ("records/tally.py", "import torch", "below the line nothing imports torch"),
        ("reports/plan.py", "import surefoot.step", "the layers of surefoot"),
        ("reports/plan.py", "import surefoot.world.world", "reports read records"),
        ("checkpoint/store.py", "import surefoot.meters.flops", "the layers of surefoot"),
        ("new_file.py", "import surefoot.errors", "the layers of surefoot"),
        ("checks/new_file.py", "import surefoot.errors", "the layers of checks"),
        ("checks/losses/loss_calls.py", "import surefoot.checks.models.layout", "the layers of checks"),
        ("checks/losses/rules/broadcast_loss.py", "import surefoot.checks.loop.gradients", "rules read facts"),
        ("checks/losses/rules/broadcast_loss.py", "import torch", "rules read facts"),
        ("checks/source/cutoffs.py", "import torch", "the user's source is read without torch"),
        ("explain/causes/devices.py", "import torch", "causes read records"),
    ],
)
def test_a_planted_violation_is_refused(copy_of_the_project: Path, file: str, line: str, contract: str):
    target = copy_of_the_project / "src" / "surefoot" / file
    target.write_text((target.read_text() if target.exists() else "") + f"\n{line}\n")
    done = lint_imports(copy_of_the_project)
    assert done.returncode == 1
    broken = [row for row in done.stdout.splitlines() if "BROKEN" in row]
    assert any(contract in row for row in broken), done.stdout


def test_private_torch_parts_stay_in_few_files():
    """Only these files may reach into torch; dispatch modes are the one exception."""
    worlds = {"world.py", "fake_ranks.py", "fake_operators.py", "fake_mode.py", "kernels.py"}
    allowed = {*worlds, "phases.py", "autograd.py", "ddp.py", "aoti.py"}
    for path in (ROOT / "src" / "surefoot").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            private = re.search(
                r"torch\._[a-zA-Z]|torch\.utils\._|torch\.testing\._|_sequence_nr|\._version\b|reducer\._", line
            )
            is_mode = line == "from torch.utils._python_dispatch import TorchDispatchMode"
            assert not private or is_mode or path.name in allowed, f"{path.name}:{number}: {line.strip()}"


def test_import_linter_is_installed():
    assert importlib.util.find_spec("importlinter")
