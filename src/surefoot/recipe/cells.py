"""Runs the cells of a notebook in order, without Jupyter. Each cell is a file of its own in tracebacks and findings."""

from __future__ import annotations

import ast
import json
import linecache
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from surefoot.errors import RunError

_RUN_AS_PYTHON = ("capture", "prun", "time", "timeit", "watch")
"""Cell magics whose cell is plain Python. The cells of others, for example %%bash, are skipped."""
_MAGIC = re.compile(r"(?P<indent>\s*)(?P<magic>[%!?]|\w+(, *\w+)* *= *[%!]|(pip|conda) |.*\?\s*$)")
_TIMED = re.compile(r"(?P<indent>\s*)%time\s+(?P<statement>\S.*)")


def run_notebook(file: str) -> dict[str, Any]:
    """Runs the code cells of a notebook in order. Returns its variables.

    Each cell is a file of its own, `train.ipynb cell 3`: the third code cell that is not empty, In [3] after a restart.
    """
    cells, skipped = _cells(file)
    if skipped and os.environ.get("RANK", "0") == "0":
        print(f"{file}: skipped what only IPython runs: {'; '.join(skipped)}", file=sys.stderr)
    main, before, backend = ModuleType("__main__"), sys.modules["__main__"], os.environ.get("MPLBACKEND")
    vars(main)["display"] = print
    sys.modules["__main__"] = main  # pickle looks the notebook's classes up there
    os.environ.setdefault("MPLBACKEND", "Agg")  # `plt.show()` waits for nobody in a notebook
    try:
        _remember(str(Path(file).resolve()), "".join(cells))
        for number, source in enumerate(cells, start=1):
            _remember(_cell_name(file, number), source)
            exec(compile(source, _cell_name(file, number), "exec"), vars(main))
    finally:
        sys.modules["__main__"] = before
        if backend is None:
            os.environ.pop("MPLBACKEND", None)
    return vars(main)


def in_cells(text: str, file: str) -> str:
    """JSON about a notebook, with its places as people name them: `train.ipynb cell 3 line 5`."""
    whole = json.dumps(str(Path(file).resolve()))[1:-1]

    def placed(line: re.Match[str]) -> str:
        return json.dumps(_place(file, int(line[1])))[1:-1]

    text = re.sub(f"{re.escape(whole)}:(\\d+)", placed, text)
    return re.sub(r"(\.ipynb cell \d+):(\d+)", r"\1 line \2", text)


def _place(file: str, line: int) -> str:
    """The place of a line, counted through all cells of a notebook."""
    number = 1
    while line > (size := len(linecache.getlines(_cell_name(file, number)))) > 0:
        line, number = line - size, number + 1
    return f"{_cell_name(file, number)} line {line}"


def _cell_name(file: str, number: int) -> str:
    return f"{file} cell {number}"


def _remember(name: str, source: str) -> None:
    """Tracebacks, explanations and checks find the lines of a cell under its name, and all under the notebook's."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


def _cells(file: str) -> tuple[list[str], list[str]]:
    """The code cells that are not empty, as Python, and what of them is skipped."""
    try:
        notebook = json.loads(Path(file).read_bytes())
        pages = notebook.get("worksheets", [notebook])  # before version 4 of the format
        cells = [cell for page in pages for cell in page["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"] if "source" in cell else cell["input"]) for cell in cells]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{file} is not a notebook: {type(error).__name__}: {error}") from error
    skipped: list[str] = []
    for number, source in enumerate(sources := [each for each in sources if each.strip()], start=1):
        lines = source.splitlines()
        for at in _skip(lines):
            skipped.append(f"cell {number} line {at + 1} `{source.splitlines()[at].strip()}`")
        sources[number - 1] = "\n".join(lines) + "\n"
    return sources, skipped


def _skip(lines: list[str]) -> Iterator[int]:
    """Turns what only IPython understands into comments. Yields the first line of each.

    Python says which lines those are: a line inside of a string, or one that continues an expression, stays.
    """
    first = next(at for at, line in enumerate(lines) if line.strip())
    if lines[first].startswith("%%"):
        yield first
        is_python = lines[first][2:].split(maxsplit=1)[:1] in [[name] for name in _RUN_AS_PYTHON]
        end = first + 1 if is_python else len(lines)
        lines[first:end] = [f"# {line}" for line in lines[first:end]]
    for _ in range(len(lines)):
        at = _wrong_line(lines)
        if at is None or not (found := _MAGIC.match(lines[at])):
            return
        if timed := _TIMED.fullmatch(lines[at]):
            lines[at] = f"{timed['indent']}{timed['statement']}"
            continue
        yield at
        end = at
        while lines[end].endswith("\\") and end + 1 < len(lines):
            end += 1
        lines[at] = f"{found['indent']}pass  # {lines[at].strip()}".rstrip("\\")
        lines[at + 1 : end + 1] = [f"# {line}".rstrip("\\") for line in lines[at + 1 : end + 1]]


def _wrong_line(lines: list[str]) -> int | None:
    """The line at which Python stops to understand a cell; None if it understands all of it."""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError as error:
        return min(max(0, (error.lineno or 1) - 1), len(lines) - 1)
    except (ValueError, RecursionError, MemoryError):
        return None
    return None
