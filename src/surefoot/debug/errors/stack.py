"""The frames of a traceback: the expression that failed in each, and the values of expressions there."""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from surefoot.records.explanation import Place
from surefoot.source.frames import variables
from surefoot.source.owners import is_users
from surefoot.source.parsing import parsed
from surefoot.source.scopes import scope_at

OWN_STEP = "surefoot.step"
"""The module that runs the steps of a recipe. Its frames hold the loss and the batch."""


@dataclass(frozen=True, eq=False)
class Spot:
    """One frame of a traceback."""

    file: str
    line: int
    name: str
    module: str
    names: dict[str, Any] = field(repr=False)
    """The variables of the frame."""
    outside: dict[str, Any] = field(repr=False)
    """The variables of its module."""
    node: ast.AST | None = None
    """The expression or statement that failed."""
    scope: ast.AST | None = None
    """The function or module around it."""

    @property
    def is_user(self) -> bool:
        return is_users(self.file)

    @property
    def is_own(self) -> bool:
        return self.module.split(".")[0] == "surefoot"

    @property
    def place(self) -> Place:
        return place(self.file, self.line)

    def find(self, name: str) -> Any:
        """The value of a name, or `Unknown`."""
        return self.names.get(name, self.outside.get(name, Unknown))


class Unknown:
    """Stands for a value that is not known."""


def place(file: str, line: int) -> Place:
    return Place(file, line, linecache.getline(file, line).strip())


def spots(error: BaseException) -> list[Spot]:
    """The frames of an error, outermost first."""
    found, tb = [], error.__traceback__
    while tb is not None:
        found.append(_spot(tb.tb_frame, tb.tb_lineno, tb.tb_lasti))
        tb = tb.tb_next
    return found


def _spot(frame: FrameType, line: int, at: int) -> Spot:
    code, file = frame.f_code, frame.f_code.co_filename
    tree = parsed(file) if not file.startswith("<") else None
    return Spot(
        file,
        line,
        code.co_name,
        frame.f_globals.get("__name__", ""),
        variables(frame),
        frame.f_globals,
        None if tree is None else _failed(tree, code, at),
        None if tree is None else scope_at(tree, line, code.co_name),
    )


def _failed(tree: ast.Module, code: CodeType, at: int) -> ast.AST | None:
    """The node that the instruction at `at` was compiled from."""
    if sys.version_info < (3, 11):  # code keeps the line of an instruction alone
        return None
    span = next(islice(code.co_positions(), at // 2, None), None)
    if span is None or span[0] is None:
        return None
    for node in ast.walk(tree):
        if getattr(node, "lineno", None) == span[0] and _span(node) == span and not isinstance(node, ast.Expr):
            return node
    return None


def _span(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
