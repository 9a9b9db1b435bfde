"""Value loops: where code reads a value that a plan does not know, whether it steers by it, and when its loop ends.

A `while` loop whose end depends on such a value may never end. Its rounds are counted in the frame that runs it. After
`MOST_ROUNDS` the code gets other answers, so that the loop ends.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import torch

from surefoot.source.owners import DRIVING, is_own
from surefoot.source.parsing import parsed

MOST_ROUNDS = 100
"""A loop of more rounds, whose end depends on values, is made to end."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PLUMBING = ("_", "overrides.py", "utils", "fx")
"""How the files of torch begin that stand between its operators and whoever calls them."""
_SIZES = {"range", "zeros", "ones", "empty", "full", "randn", "rand", "arange", "repeat", "expand", "view", "split"}
_SIZES |= {"reshape", "narrow", "new_zeros", "new_ones", "new_empty", "new_full", "topk", "islice"}
Place = tuple[int, int | None]


@dataclass
class Rounds:
    """Hangs on the frame that runs a loop, and counts its rounds by the line that reads. It traces nothing."""

    counts: dict[tuple[int, Any, int], int] = field(default_factory=dict)

    def __call__(self, *_: Any) -> None:
        return None


_BESIDE_DEBUGGER = Rounds()
"""For frames that a debugger follows: all calls of a function are one loop."""


@dataclass(frozen=True)
class Reading:
    """One reading of an unknown value: what the code does with it, and in which round of which loop."""

    refuses: bool = False
    """Whether the code raises an error if the value is wrong: it tests what it was given."""
    steers: bool = False
    """Whether a branch, a loop or a size depends on it."""
    breaks: bool = False
    """Whether the code leaves a loop if it is true."""
    round: int = 0
    """The round of a `while` loop around it; 0 outside of such loops."""
    loop: str = ""
    """The line of that loop."""

    @property
    def rounds_over(self) -> int:
        """How many rounds the loop has had more than it may have."""
        return max(0, self.round - MOST_ROUNDS)


def reading() -> Reading:
    """The reading that is going on: what the nearest code outside of torch's plumbing does."""
    frames = list(_frames())
    if not frames:
        return Reading()
    nearest = frames[0]
    statement = _statement(nearest.f_code.co_filename, _place(nearest))
    rounds, loop = 0, ""
    for frame in frames if statement[1] else frames[:1]:
        line, may_be_endless = _loop_line(frame.f_code.co_filename, frame.f_lineno)
        if line:
            rounds = _count(frame, line, nearest) if may_be_endless else 0
            loop = f"{os.path.basename(frame.f_code.co_filename)}:{line}"
            break
    return Reading(*statement, rounds, loop)


def _frames() -> Iterator[FrameType]:
    """The frames of the step, innermost first, without those of surefoot and of torch's plumbing at the inner end."""
    frame: FrameType | None = sys._getframe(2)
    inner = True
    while frame is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        if module.startswith(DRIVING) or (not inner and is_own(file) and not module.startswith("surefoot.recipes")):
            return
        inner = inner and (is_own(file) or _is_plumbing(file)) and not module.startswith("surefoot.recipes")
        if not inner:
            yield frame
        frame = frame.f_back


@cache
def _is_plumbing(file: str) -> bool:
    return file.startswith(_TORCH) and file.removeprefix(_TORCH).startswith(_PLUMBING)


def _count(frame: FrameType, line: int, nearest: FrameType) -> int:
    """Counts a round. The count lives in the frame: another call of the function begins anew."""
    rounds = frame.f_trace
    if rounds is None:
        rounds = frame.f_trace = Rounds()
    if not isinstance(rounds, Rounds):
        rounds = _BESIDE_DEBUGGER
    key = line, nearest.f_code, nearest.f_lineno
    rounds.counts[key] = rounds.counts.get(key, 0) + 1
    return rounds.counts[key]


@cache
def _loop_line(file: str, line: int) -> tuple[int, bool]:
    """The line of the innermost loop around a line in the same function, 0 if there is none; and whether it is `while`.

    Code without a file may loop anywhere.
    """
    tree = parsed(file)
    if tree is None or not tree.body:
        return line, True
    around = [each for each in ast.walk(tree) if _spans(each, (line, None)) and not isinstance(each, ast.expr)]
    for node in reversed(around):  # the innermost comes last
        if isinstance(node, ast.While) or (isinstance(node, ast.For) and not _spans(node.iter, (line, None))):
            return node.lineno, isinstance(node, ast.While)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    return 0, False


def _place(frame: FrameType) -> Place:
    """The line and the column of the expression that a frame evaluates. Before Python 3.11 the line only."""
    line, column = frame.f_lineno, None
    if hasattr(frame.f_code, "co_positions"):
        known = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
        line, column = (known[0], known[2]) if known[0] is not None else (line, None)
    return line, column


@cache
def _statement(file: str, place: Place) -> tuple[bool, bool, bool]:
    """Of the code at a place: whether it refuses wrong values, steers by them, or leaves a loop."""
    tree = parsed(file)
    nodes = [] if tree is None else [each for each in ast.walk(tree) if _spans(each, place)]
    tests = [each for each in nodes if isinstance(each, ast.If | ast.While) and _tests(each, place)]
    refuses = any(isinstance(each, ast.Assert) for each in nodes) or any(
        isinstance(each, ast.If) and isinstance(each.body[0], ast.Raise) for each in tests
    )
    breaks = any(isinstance(each, ast.If) and isinstance(each.body[-1], ast.Break) for each in tests)
    sizes = any(isinstance(each, ast.Call) and _name(each.func) in _SIZES for each in nodes)
    chosen = (part for each in nodes for part in _deciding(each))
    steers = bool(tests) or sizes or any(_spans(part, place) for part in chosen)
    return refuses, steers and not refuses, breaks


def _tests(node: ast.If | ast.While, place: Place) -> bool:
    """Whether code at a place is the test of a branch. Python gives the jump after it the place of the whole branch."""
    return _spans(node.test, place) or place == (node.lineno, node.col_offset)


def _deciding(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression or loop that decide what runs, or how often."""
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.Subscript):
        return [node.slice]
    return [node] if isinstance(node, ast.Compare | ast.BoolOp) else []


def _spans(node: ast.AST, place: Place) -> bool:
    line, column = place
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None or not first <= line <= last:
        return False
    if column is None:
        return not isinstance(node, ast.expr) or first == last
    starts = line > first or column >= node.col_offset  # type: ignore[attr-defined]
    return starts and (line < last or column < node.end_col_offset)  # type: ignore[attr-defined]


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
