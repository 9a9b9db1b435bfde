"""Tells a recipe, a script and a notebook apart by reading the source. Nothing is executed, and torch is not loaded."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from surefoot.recipe.builtin import builtin_recipes

Kind = Literal["recipe", "script", "notebook", "neither"]

_SUFFIXES = (".py", ".pyw", "")
"""Files that may hold Python. Others, for example weights, are not read."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def kind_of(target: str) -> Kind:
    """What a target names: a built-in recipe, `module:function`, or a file whose source says what it is.

    A recipe file has a function annotated `-> Recipe`, or the target names a function in it. A script does something
    when it runs. A module of definitions, a file that is not Python and a file that does not exist are neither.
    """
    place, wanted = split_target(target)
    if is_notebook(place):
        return "notebook" if _is_file(place) else "neither"
    if target in builtin_recipes() or (wanted.isidentifier() and _is_module(place)):
        return "recipe"
    tree = parsed(place)
    if tree is None:
        return "neither"
    if recipe_functions(tree) or (wanted and wanted in _names(tree)):
        return "recipe"
    return "script" if _does_something(tree) else "neither"


def is_notebook(file: str) -> bool:
    """Does the name end as that of a notebook?"""
    return file.lower().endswith(".ipynb")


def split_target(target: str) -> tuple[str, str]:
    """A target's place and the function it names there, which may be empty."""
    place, separator, function = target.rpartition(":")
    return (place, function) if separator else (target, "")


def parsed(file: str) -> ast.Module | None:
    """The syntax tree of a file; None if it does not exist or is not Python."""
    if not _is_file(file) or Path(file).suffix not in _SUFFIXES:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whoever runs the file hears them
            return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def recipe_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions of a module that are annotated to return a `Recipe`, in order."""
    known = {"Recipe"} | {
        each.asname or each.name
        for node in _statements(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.name == "Recipe"
    }
    known -= {node.name for node in _statements(tree) if isinstance(node, ast.ClassDef)}  # a Recipe of the file's own
    functions = (node for node in _statements(tree) if isinstance(node, ast.FunctionDef))
    return [each for each in functions if each.returns is not None and _names_recipe(each.returns, known)]


def _names_recipe(annotation: ast.expr, known: set[str]) -> bool:
    """Is it `Recipe`, `surefoot.Recipe`, or one of them in quotes?"""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value in known or annotation.value.endswith(".Recipe")
    if isinstance(annotation, ast.Attribute):
        return annotation.attr == "Recipe"
    return isinstance(annotation, ast.Name) and annotation.id in known


def _does_something(tree: ast.Module) -> bool:
    """Does running the module do more than define names?

    Calls do something, unless a name is assigned what an import returns: `logger = logging.getLogger()`.
    """
    own = {node.name for node in _statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {name for node in _statements(tree) for name in _assigned(node)}
    return any(_acts(node, own) for node in _statements(tree))


def _acts(node: ast.stmt, own: set[str]) -> bool:
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return True
    if isinstance(node, ast.If):
        return _is_main(node.test) and not all(isinstance(each, ast.Pass) for each in node.body)
    if isinstance(node, ast.Expr):
        return any(isinstance(each, ast.Call | ast.Await) for each in ast.walk(node))
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return any(isinstance(each, ast.Call) and _root(each.func) in own for each in ast.walk(node))
    return False


def _is_main(test: ast.expr) -> bool:
    """Is it `__name__ == "__main__"`, perhaps among other conditions?"""
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test))


def _names(tree: ast.Module) -> set[str]:
    """The names that a module binds."""
    found = {node.name for node in _statements(tree) if isinstance(node, _DEFINITIONS)}
    for node in _statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {each.asname or each.name for each in node.names}
        found |= set(_assigned(node))
    return found


def _assigned(node: ast.stmt) -> Iterator[str]:
    """The names that an assignment binds."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _root(node: ast.expr) -> str:
    """The first name of `trainer.fit` or `trainer.fit().losses`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run with a module, also those inside `if`, `try` and `with`, in order."""
    left: list[ast.AST] = [*reversed(tree.body)]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, _DEFINITIONS):
            inner = (ast.stmt, ast.ExceptHandler, ast.match_case)
            left += reversed([each for each in ast.iter_child_nodes(node) if isinstance(each, inner)])


def _is_file(place: str) -> bool:
    try:
        return Path(place).is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a zero byte
        return False


def _is_module(place: str) -> bool:
    return not place.endswith(".py") and all(part.isidentifier() for part in place.split("."))
