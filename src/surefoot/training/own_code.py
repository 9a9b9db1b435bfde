"""The user's own code that a recipe is made of: its file and the modules it imports, found without importing any."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from surefoot.source.owners import is_users

MOST_FILES = 1000


def code_digest(source: Path) -> str:
    """A digest of the code in a file; comments and layout do not count."""
    text = source.read_bytes()
    try:
        return hashlib.sha256(ast.dump(ast.parse(text)).encode()).hexdigest()
    except (SyntaxError, ValueError):
        return hashlib.sha256(text).hexdigest()


def module_digests(source: Path) -> dict[str, str]:
    """A digest of each of the user's own files that a file imports, directly or not, by relative path.

    Installed packages, the standard library and surefoot are left out. Imports are read from the source: imports
    inside functions count, imports with a computed name do not.
    """
    found: dict[Path, None] = {}
    waiting = [source.resolve()]
    while waiting and len(found) < MOST_FILES:
        for path in _imported(waiting.pop()):
            if path not in found and path != source.resolve():
                found[path] = None
                waiting.append(path)
    root = _package_root(source.resolve())  # names are relative, so that the whole project can be moved
    return {os.path.relpath(path, root): code_digest(path) for path in sorted(found)}


def _imported(path: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(path, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            names = [[], *([alias.name] for alias in node.names)]  # the module, and names that may be modules in it
            words = node.module.split(".") if node.module else []
            for name in names:
                yield from _files(path, [*words, *name], level=node.level)


def _files(path: Path, words: list[str], *, level: int = 0) -> Iterator[Path]:
    """The files that an import of a dotted name reads: every package on the way, and the module."""
    roots = [path.parents[level - 1]] if level else _roots(path, words[0])
    for root in roots:
        place = root
        for word in words:
            place = place / word
            files = [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()]
            yield from (each.resolve() for each in files[:1])


def _roots(path: Path, top: str) -> list[Path]:
    """The folders that hold a top-level module of the user: next to the file, or on Python's path."""
    # beside an installed recipe, a built-in one for example, stand all packages that pip has installed
    beside = [each for each in (path.parent, _package_root(path)) if _holds(each, top) and _is_own(each / top)]
    return beside[:1] or _on_path(top)


def _package_root(path: Path) -> Path:
    folder = path.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _holds(folder: Path, top: str) -> bool:
    return top != "surefoot" and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())


@cache
def _on_path(top: str) -> list[Path]:
    if top in sys.stdlib_module_names or top in ("surefoot", "torch"):
        return []
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return []
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else ())]
    return [Path(place).resolve().parent for place in places[:1] if _is_own(Path(place))]


def _is_own(path: Path) -> bool:
    """Is it the user's, as it is named and where its links lead? An installer may link to its cache."""
    return is_users(str(path)) and is_users(str(path.resolve()))
