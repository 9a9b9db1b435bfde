"""The functions and statements of a file around a line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

_SCOPES = 256
"""The nodes of this many scopes are kept. To find where a value was set, one scope is searched hundreds of times."""


def scope_at(tree: ast.Module, line: int, name: str) -> ast.AST:
    """The innermost function of this name around a line; the module if there is none."""
    held = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [each for each in held if each.name == name and each.lineno <= line <= (each.end_lineno or 0)]
    return max(around, key=lambda each: each.lineno, default=tree)


def statement_of(scope: ast.AST, line: int) -> ast.stmt | None:
    """The innermost statement of a scope around a line."""
    held = [each for each in own_nodes(scope) if isinstance(each, ast.stmt)]
    around = [each for each in held if each.lineno <= line <= (each.end_lineno or 0)]
    return max(around, key=lambda each: (each.lineno, -(each.end_lineno or 0)), default=None)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes inside."""
    return iter(_own_nodes(scope))


@lru_cache(maxsize=_SCOPES)
def _own_nodes(scope: ast.AST) -> tuple[ast.AST, ...]:
    found, waiting = list[ast.AST](), list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return tuple(found)
