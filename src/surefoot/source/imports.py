"""The files of a program: a script and the modules of the user's that it imports."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
from collections.abc import Iterable, Iterator

from surefoot.source.owners import is_users
from surefoot.source.parsing import parsed

_NOTEBOOK = ".ipynb"
_MOST = 64
"""The most files that are read for one script."""


def with_imports(files: Iterable[str]) -> list[str]:
    """These files, and those that they import, also through others."""
    found, waiting = dict[str, None](), [file for file in files if file]
    while waiting and len(found) < _MOST:
        file = waiting.pop(0)
        if file not in found and is_users(file) and not file.endswith(_NOTEBOOK):
            found[file] = None
            waiting += (*_cells(file), *_imported(file))
    return list(found)


def _cells(file: str) -> list[str]:
    """The other cells of a notebook, each a file of its own: `train.ipynb cell 3`."""
    notebook, is_cell, _ = file.partition(f"{_NOTEBOOK} cell ")
    return [each for each in linecache.cache if each.startswith(notebook + is_cell)] if is_cell else []


def _imported(file: str) -> Iterator[str]:
    """The files of the loaded modules that a file names in its imports."""
    for node in ast.walk(parsed(file) or ast.Module([], [])):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            module = _absolute(node, file)
            names = [module, *(f"{module}.{each.name}" for each in node.names)]
        for name in names:
            held = getattr(sys.modules.get(name), "__file__", None)
            if held and held.endswith(".py"):
                yield held


def _absolute(node: ast.ImportFrom, file: str) -> str:
    if not node.level:
        return node.module or ""
    package = next(
        (each.__package__ for each in list(sys.modules.values()) if getattr(each, "__file__", "") == file), ""
    )
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
    except ImportError:
        return ""
