"""Cutoffs: whether the source compares numbers that left torch with one half, or rounds them."""

from __future__ import annotations

import ast

from surefoot.probes.loop_body import name_of_call, words
from surefoot.probes.source import parsed

_LEAVING = ("numpy", "tolist", "item", "array", "asarray")
_SQUASHING = ("sigmoid", "softmax", "expit", "exp", "tanh")
_ROUNDING = ("round", "rint", "round_", "around")


def cut_at_half(file: str, line: int) -> bool:
    """Are numbers that leave torch on this line compared with one half in the function that holds it?"""
    tree = parsed(file)
    scopes = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.Module)] if tree else []
    around = [each for each in scopes if isinstance(each, ast.Module) or each.lineno <= line <= (each.end_lineno or 0)]
    if not around:
        return False
    nodes = list(ast.walk(max(around, key=lambda each: getattr(each, "lineno", 0))))
    names = _named(nodes, line)
    halves = {"0.5"} | {
        each.targets[0].id
        for each in ast.walk(around[0])
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and ast.unparse(each.value) == "0.5"
    }
    return any(_cuts(each, names, line, halves) for each in nodes)


def _named(nodes: list[ast.AST], line: int) -> set[str]:
    """The names of what left torch on a line, and of what is made of it."""
    names: set[str] = set()
    for _ in range(3):
        for each in nodes:
            if isinstance(each, ast.Assign) and _is_of(each.value, names, line):
                names |= words(each.targets[0])
            elif isinstance(each, ast.For | ast.comprehension) and _is_of(each.iter, names, line):
                names |= words(each.target)
    return names


def _is_of(value: ast.expr, names: set[str], line: int) -> bool:
    """Is this what left torch, as it is?"""
    calls = [each for each in ast.walk(value) if isinstance(each, ast.Call)]
    if any(name_of_call(each) in _SQUASHING for each in calls) or any(
        isinstance(each, ast.Compare) for each in ast.walk(value)
    ):
        return False
    leaves = any(name_of_call(each) in _LEAVING and each.lineno <= line <= (each.end_lineno or 0) for each in calls)
    return leaves or not names.isdisjoint(words(value))


def _cuts(node: ast.AST, names: set[str], line: int, halves: set[str]) -> bool:
    if isinstance(node, ast.Call) and name_of_call(node) in _ROUNDING:
        digits = len(node.args) - (not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) == "np")
        return digits <= 0 and not node.keywords and _is_of(node, names, line)
    if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
        return False
    sides = (node.left, node.comparators[0])
    return any(ast.unparse(a) in halves and _is_of(b, names, line) for a, b in (sides, sides[::-1]))
