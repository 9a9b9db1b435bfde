"""What is imported when: the help is quick, records need no torch, and the directions of imports hold."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot
from tests.imported import CLI, ROOT, imported_by


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

    Seconds are those the processor worked, the best of five and interleaved: seconds on the wall also count
    what other programs of a shared machine do, and a slow machine is slow at both.
    """

    def seconds(*command: str) -> float:
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    pairs = [(seconds("-m", "surefoot", "--help"), seconds("-c", "import torch")) for _ in range(5)]
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


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import surefoot.step"


@pytest.mark.sweep
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
        ("records/tally.py", FOR_TYPES, "the layers of surefoot"),
        ("new_file.py", "import surefoot.errors", "the layers of surefoot"),
        ("checks/new_file.py", "import surefoot.errors", "the layers of checks"),
        ("checks/losses/loss_calls.py", "import surefoot.checks.models.layout", "the layers of checks"),
        ("checks/losses/rules/broadcast_loss.py", "import surefoot.checks.loop.gradients", "rules read facts"),
        ("checks/losses/rules/broadcast_loss.py", "import torch", "rules read facts"),
        ("source/cutoffs.py", "import torch", "the user's source is read without torch"),
        ("debug/errors/causes/devices.py", "import torch", "causes read records"),
    ],
)
def test_a_planted_violation_is_refused(copy_of_the_project: Path, file: str, line: str, contract: str):
    target = copy_of_the_project / "src" / "surefoot" / file
    target.write_text((target.read_text() if target.exists() else "") + f"\n{line}\n")
    done = lint_imports(copy_of_the_project)
    assert done.returncode == 1
    broken = [row for row in done.stdout.splitlines() if "BROKEN" in row]
    assert any(contract in row for row in broken), done.stdout


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """For each file, the files that it imports, also for type checking only."""
    import grimp

    graph = grimp.build_graph("surefoot", exclude_type_checking_imports=False, cache_dir=None)
    return {file: graph.find_modules_directly_imported_by(file) for file in graph.modules}


def test_no_file_imports_more_than_40_others(imports: dict[str, set[str]]):
    assert max(map(len, imports.values())) <= 40, max(imports, key=lambda file: len(imports[file]))


CIRCLE = """
import graphlib, grimp
graph = grimp.build_graph("surefoot", exclude_type_checking_imports=False, cache_dir=None)
imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
try:
    graphlib.TopologicalSorter(imports).prepare()
except graphlib.CycleError as error:
    print(" <- ".join(error.args[1]))
"""


def circle_in(folder: Path) -> str:
    """Files that import each other in a circle; empty if there are none.

    Imports inside functions count, and so do those for type hints.
    """
    paths = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, "-c", CIRCLE], cwd=folder, env=paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_files_import_each_other_in_a_circle():
    assert circle_in(ROOT) == ""


@pytest.mark.parametrize(
    "line",
    [
        "from surefoot.records.ledger import Ledger",
        "if TYPE_CHECKING:\n    from surefoot.records.ledger import Ledger",
        "def later():\n    from surefoot.records.ledger import Ledger",
    ],
)
def test_a_planted_circle_is_found(copy_of_the_project: Path, line: str):
    target = copy_of_the_project / "src" / "surefoot" / "records" / "tally.py"
    target.write_text(f"from typing import TYPE_CHECKING\n{target.read_text()}\n{line}\n")
    circle = circle_in(copy_of_the_project)
    assert "surefoot.records.tally" in circle
    assert "surefoot.records.ledger" in circle


def test_import_linter_is_installed():
    assert importlib.util.find_spec("importlinter")
