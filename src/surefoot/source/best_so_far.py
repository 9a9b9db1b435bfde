"""Reads from the source how a script keeps its best model so far."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from types import FrameType
from typing import Any

from surefoot.source.frames import variables
from surefoot.source.loop_body import assigned
from surefoot.source.parsing import parsed

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def records_kept(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The lines of a frame's file that keep an object whenever a record is beaten, and that object."""
    found = variables(frame)
    for line, path in _kept_with_records(frame.f_code.co_filename):
        owner, _, name = path.rpartition(".")
        kept = getattr(found.get(owner), "__dict__", {}).get(name) if owner else found.get(name)
        if kept is not None:
            yield f"{frame.f_code.co_filename}:{line}", kept


@cache
def _kept_with_records(file: str) -> tuple[tuple[int, str], ...]:
    """Lines such as `best = model`, without a copy, under an `if` that compares with a record and updates it."""
    found = []
    for node in ast.walk(parsed(file) or ast.Module([], [])):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], _ORDERS):
            compared = {ast.unparse(each) for each in (node.test.left, *node.test.comparators)}
            pairs = [pair for each in node.body if isinstance(each, ast.Assign) for pair in assigned(each)]
            if any(ast.unparse(target) in compared for target, _ in pairs):
                found += [(t.lineno, ast.unparse(t)) for t, value in pairs if _is_path(t) and _is_path(value)]
    return tuple((line, path) for line, path in found if path.count(".") <= 1)


def sets_record(file: str, line: int) -> bool:
    """Is this line under an `if` that compares with a record and updates it?"""
    for node in ast.walk(parsed(file) or ast.Module([], [])):
        if isinstance(node, ast.If) and node.body[0].lineno <= line <= (node.end_lineno or 0):
            compares = [e for e in ast.walk(node.test) if isinstance(e, ast.Compare) and isinstance(e.ops[0], _ORDERS)]
            compared = {ast.unparse(part) for each in compares for part in ast.walk(each) if isinstance(part, ast.expr)}
            pairs = [pair for each in ast.walk(node) if isinstance(each, ast.Assign) for pair in assigned(each)]
            if any(ast.unparse(target) in compared for target, _ in pairs):
                return True
    return False


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
