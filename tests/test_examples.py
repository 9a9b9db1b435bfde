"""Every example runs, and the Python code in README and docs is the code of an example."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FOR_A_GPU = ("train_bert.py",)
"""Scripts that run on a GPU only. They are planned."""
CHECKS = ROOT / "docs" / "checks"  # their code is the check's own example, in the docstring that they are made from
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if CHECKS not in page.parents)]


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path):
    for library in re.findall(r"^(?:from|import) (accelerate|lightning)\b", path.read_text(), re.MULTILINE):
        pytest.importorskip(library, reason=f"pip install {library}")
    planned = "-> Recipe" in path.read_text() or path.name in FOR_A_GPU
    command = ["-m", "surefoot", "plan", str(path)] if planned else [str(path)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_in_a_page_stands_in_an_example(page: Path):
    examples = [path.read_text() for path in EXAMPLES]
    for block in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL):
        assert any(block.strip() in example for example in examples), f"{page.name}: no example holds\n{block}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_screen_of_the_readme_is_short():
    before_code = (ROOT / "README.md").read_text().split("```")[0]
    assert len(before_code.split()) < 60
