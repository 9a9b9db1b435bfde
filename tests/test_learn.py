"""Every chapter of the course runs as a notebook, and its exercises reject wrong answers."""

import ast
import csv
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep

LEARN = Path(__file__).parent.parent / "docs" / "learn"
CHAPTERS = sorted(LEARN.glob("[0-9][0-9]_*.py"))
SECONDS_PER_CELL = 300

jupytext = pytest.importorskip("jupytext", reason="the course is turned into notebooks by jupytext")
nbformat = pytest.importorskip("nbformat", reason="the notebooks of the course are built with nbformat")
nbclient = pytest.importorskip("nbclient", reason="the notebooks of the course are run by nbclient")
pytest.importorskip("ipykernel", reason="the notebooks of the course need a kernel")

TRY_WRONG_ANSWERS = """
import contextlib as _contextlib, io as _io, json as _json

def _wrong(value):
    "An answer like the right one that is not right."
    if callable(value):
        return lambda *args, **kwargs: None
    return value + 1 if isinstance(value, (int, float)) else None

def _passes(check, names):
    try:
        with _contextlib.redirect_stdout(_io.StringIO()):
            exec(check, names)
    except Exception:
        return False
    return True

_accepted = []
for _number, (_names, _check) in enumerate(_json.loads(_EXERCISES), start=1):
    _right = dict(globals())
    if not _passes(_check, dict(_right)):
        _accepted.append(f"exercise {_number} rejects its own solution when it is checked again")
    if _passes(_check, {key: value for key, value in _right.items() if key not in _names}):
        _accepted.append(f"exercise {_number} accepts a missing answer")
    for _name in _names:
        if _passes(_check, {**_right, _name: _wrong(_right[_name])}):
            _accepted.append(f"exercise {_number} accepts a wrong {_name}")
print("ACCEPTED" + _json.dumps(_accepted))
"""


def tagged(cell, tag: str) -> bool:
    return cell.cell_type == "code" and tag in cell.metadata.get("tags", [])


def exercises(notebook) -> list[tuple[list[str], str]]:
    """Of every exercise, the names that its solution defines and the source of its check."""
    cells = notebook.cells
    return [
        (names_defined(cell.source), after.source)
        for cell, after in pairwise(cells)
        if tagged(cell, "solution") and tagged(after, "check")
    ]


def names_defined(source: str) -> list[str]:
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return names


def headings(notebook) -> set[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return set(re.findall(r"^#+ (.+)$", text, re.MULTILINE))


@pytest.mark.filterwarnings("ignore")  # of jupyter's packages and of event loops; a chapter's own go to its kernel
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_its_checks_reject_wrong_answers(path: Path, tmp_path: Path):
    notebook = jupytext.read(path)
    trial = f"_EXERCISES = {json.dumps(exercises(notebook))!r}\n{TRY_WRONG_ANSWERS}"
    notebook.cells.append(nbformat.v4.new_code_cell(trial))
    resources = {"metadata": {"path": str(tmp_path)}}
    done = nbclient.NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources=resources).execute()
    printed = "".join(
        out.text for out in done.cells[-1].outputs if out.output_type == "stream" and out.name == "stdout"
    )
    assert json.loads(printed.partition("ACCEPTED")[2]) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_exercises_and_says_what_comes_next(path: Path):
    notebook = jupytext.read(path)
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    solutions = [cell for cell in notebook.cells if tagged(cell, "solution")]
    checks = [cell for cell in notebook.cells if tagged(cell, "check")]
    assert 3 <= len(solutions) <= 5
    assert len(solutions) == len(checks) == len(exercises(notebook)), "a check must follow its solution"
    assert all(names for names, _ in exercises(notebook)), "a solution must define something"
    assert {"Exercises", "Next"} <= headings(notebook)


def test_what_is_covered_has_a_heading():
    with (LEARN / "covered.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows
    known = {path.stem: headings(jupytext.read(path)) for path in CHAPTERS}
    lost = [row for row in rows if row["heading"] not in known.get(row["chapter"], set())]
    assert lost == []


def test_there_are_chapters():
    assert CHAPTERS
