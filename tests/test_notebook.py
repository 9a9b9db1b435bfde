"""Notebooks: a watched cell changes names as ever and shows its cost; a whole notebook runs without Jupyter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.errors import RunError
from surefoot.recipe.cells import run_notebook
from surefoot.watch import watch_script

ROOT = Path(__file__).parent.parent


class Shell:
    """What of IPython's shell is used."""

    def __init__(self) -> None:
        self.magics, self.user_ns = {}, {"torch": torch}

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def transform_cell(self, cell: str) -> str:
        return cell


CELL = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def test_a_watched_cell():
    shell = Shell()
    surefoot.load_ipython_extension(shell)
    seen = shell.magics["cell", "watch"]("", CELL)
    assert (seen.steps, shell.user_ns["step"]) == (8, 7)
    assert seen.steady.tally.total("flops/forward") == 2 * 3 * 4 * 2
    assert "this cell" in seen._repr_html_()
    stopped = shell.magics["cell", "watch"]("5", CELL)
    assert (stopped.steps, shell.user_ns["step"]) == (5, 4)


def notebook(path: Path, *cells: str) -> Path:
    """Writes a notebook with a page of text before its code cells."""
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "words"}, *code], "nbformat": 4}))
    return path


def watched(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    typed = [sys.executable, "-m", "surefoot", "watch", *words]
    return subprocess.run(
        typed, capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "300", "SUREFOOT_RAISE": ""}
    )


def test_findings_in_a_notebook_name_cell_and_line(tmp_path: Path):
    source = (ROOT / "examples" / "house_prices.py").read_text()
    cells = ["%matplotlib inline\n", "", *source.split("\n\n")]
    path = notebook(tmp_path / "houses.ipynb", *cells)
    done = watched(path.name, "--steps", "30", "--sarif", "found.sarif", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    number, cell = next((n, each) for n, each in enumerate(cells[2:], start=2) if "loss.backward()" in each)
    line = next(n for n, each in enumerate(cell.splitlines(), start=1) if "- target" in each)
    assert f"houses.ipynb cell {number} line {line}\n" in "\n".join(map(str.rstrip, done.stdout.splitlines())) + "\n"
    assert "skipped what only IPython runs: cell 1 line 1 `%matplotlib inline`" in done.stderr
    (result,) = [each for each in json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
                 if each["ruleId"] == "broadcast-loss"]  # fmt: skip
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "houses.ipynb"


def test_a_notebook_has_the_findings_of_its_script(tmp_path: Path):
    source = (ROOT / "examples" / "house_prices.py").read_text()
    path = notebook(tmp_path / "houses.ipynb", *source.split("\n\n"))
    found = [
        {each.check for each in watch_script(str(file), steps=30).findings.findings}
        for file in (path, ROOT / "examples" / "house_prices.py")
    ]
    assert found[0] == found[1] != set()


def test_an_error_in_a_notebook_shows_the_line_of_its_cell(tmp_path: Path):
    path = notebook(tmp_path / "wrong.ipynb", "import torch\n", "x = torch.ones(2, 3)\n\nx @ x\n")
    done = watched(path.name, cwd=tmp_path)
    assert done.returncode == 1
    assert 'File "wrong.ipynb cell 2", line 3' in done.stderr
    assert "    x @ x\n" in done.stderr


def test_reordering_of_one_array_in_another_cell_is_placed_in_its_cell(tmp_path: Path):
    path = notebook(tmp_path / "rows.ipynb", "import torch\n", *APART)
    seen = watch_script(str(path))
    (where,) = {each.where for each in seen.findings.findings if each.check == "labels-of-other-samples"}
    assert where == f"{path} cell 3 line 2"


APART = (
    """torch.manual_seed(0)
def make(count):
    x = torch.randn(count, 4)
    return x, (x.sum(1) > 0).long()
x, y = make(64)
""",
    """
x = x[torch.randperm(len(x))]
""",
    """data = torch.utils.data.TensorDataset(x, y)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for features, labels in torch.utils.data.DataLoader(data, 8, shuffle=True):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(features), labels).backward()
    optimizer.step()
""",
)


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("!pip install torch \\\n  numpy\nx = 1", {"x": 1}),
        ("%env A=1\nx = 1", {"x": 1}),
        ("if True:\n    !ls 'a\nx = 1", {"x": 1}),
        ("%time x = max(1,\n  2)", {"x": 2}),
        ("%%time\nx = 1", {"x": 1}),
        ("%%bash\nx = 1", {}),
        ("pip install torch\nx = 1", {"x": 1}),
        ("max?\nx = 1", {"x": 1}),
        ("files = !ls\nx = 1", {"x": 1}),
        ("x = '''\n!kept\n%kept\n'''", {"x": "\n!kept\n%kept\n"}),
        ("x = (7\n% 4)", {"x": 3}),
        ("display(1)\nx = __name__", {"x": "__main__"}),
    ],
)
def test_what_only_ipython_runs_is_skipped(cell: str, names: dict[str, object], tmp_path: Path):
    seen = run_notebook(str(notebook(tmp_path / "magic.ipynb", cell)))
    assert {name: each for name, each in seen.items() if name in ("x", "files")} == names


def test_a_notebook_leaves_main_and_the_environment_as_they_were(tmp_path: Path):
    main, before = sys.modules["__main__"], dict(os.environ)
    with pytest.raises(SyntaxError):
        run_notebook(str(notebook(tmp_path / "wrong.ipynb", "x = = 1")))
    assert (sys.modules["__main__"], dict(os.environ)) == (main, before)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"cells": [1]}', '{"cells": [{"cell_type": "code"}]}'])
def test_a_file_that_is_not_a_notebook_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "not.ipynb"
    path.write_text(text)
    with pytest.raises(RunError, match="is not a notebook"):
        run_notebook(str(path))
