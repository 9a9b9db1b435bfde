"""Reads from the source whether scores outside of torch are compared with 0.5 or rounded."""

from __future__ import annotations

import ast
from collections.abc import Callable

from surefoot.source.loop_body import name_of_call, words
from surefoot.source.parsing import parsed

_LEAVING = ("numpy", "tolist", "item", "array", "asarray")
_SQUASHING = ("sigmoid", "softmax", "expit", "exp", "tanh")
_ROUNDING = ("round", "rint", "round_", "around")
_SHAPING = ("isinstance", "astype", "squeeze", "reshape", "flatten", "ravel", "tensor", "from_numpy", "float")
"""Calls that leave the values as they are, besides those that leave torch."""


def cut_at_half(file: str, line: int) -> bool:
    """Are values that leave torch on this line compared with 0.5 or rounded in the same function?"""
    tree = parsed(file)
    scopes = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.Module)] if tree else []
    around = [each for each in scopes if isinstance(each, ast.Module) or each.lineno <= line <= (each.end_lineno or 0)]
    if not around:
        return False
    nodes = list(ast.walk(max(around, key=lambda each: getattr(each, "lineno", 0))))

    def leaves(node: ast.AST) -> bool:
        on_line = getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", 0) or 0)
        return isinstance(node, ast.Call) and name_of_call(node) in _LEAVING and on_line

    names = _named(nodes, set(), leaves)
    halves = {"0.5"} | {
        each.targets[0].id
        for each in ast.walk(around[0])
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and ast.unparse(each.value) == "0.5"
    }
    return any(_cuts(each, names, leaves, halves) for each in nodes)


def predictions_cut_at_half(file: str, line: int) -> int:
    """The line on which a metric function compares its predictions with 0.5; 0 if there is none.

    The function begins on the given line. It gets all predictions and labels of an evaluation, like
    `compute_metrics` of transformers.
    """
    tree = parsed(file)
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)] if tree else []
    begun = [each for each in functions if min([each.lineno, *(d.lineno for d in each.decorator_list)]) == line]
    nodes = [node for each in begun[:1] for node in ast.walk(each)]
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    if any(name_of_call(each) in _SQUASHING for each in calls):
        return 0
    given = {each.args.args[-1].arg for each in begun[:1] if each.args.args}
    unpacked = [each for each in nodes if isinstance(each, ast.Assign) and ast.unparse(each.value) in given]
    firsts = {ast.unparse(each.targets[0].elts[0]) for each in unpacked if isinstance(each.targets[0], ast.Tuple)}

    def leaves(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "predictions"

    names = _named(nodes, firsts, leaves, plain=True)
    cuts = (each for each in nodes if isinstance(each, ast.Compare))
    return next((each.lineno for each in cuts if _cuts(each, names, leaves, {"0.5"}, plain=True)), 0)


def _named(
    nodes: list[ast.AST], names: set[str], leaves: Callable[[ast.AST], bool], *, plain: bool = False
) -> set[str]:
    """The names of values that left torch, and of values computed from them."""
    for _ in range(3):
        for each in nodes:
            if isinstance(each, ast.Assign) and _is_of(each.value, names, leaves, plain=plain):
                names |= words(each.targets[0])
            elif isinstance(each, ast.For | ast.comprehension) and _is_of(each.iter, names, leaves, plain=plain):
                names |= words(each.target)
    return names


def _is_of(value: ast.expr, names: set[str], leaves: Callable[[ast.AST], bool], *, plain: bool = False) -> bool:
    """Is this a value that left torch, unchanged? With `plain`, an unknown call counts as a change."""
    calls = [name_of_call(each) for each in ast.walk(value) if isinstance(each, ast.Call)]
    if any(each in _SQUASHING or (plain and each not in (*_LEAVING, *_SHAPING)) for each in calls):
        return False
    if any(isinstance(each, ast.Compare) for each in ast.walk(value)):
        return False
    return any(map(leaves, ast.walk(value))) or not names.isdisjoint(words(value))


def _cuts(
    node: ast.AST, names: set[str], leaves: Callable[[ast.AST], bool], halves: set[str], *, plain: bool = False
) -> bool:
    if isinstance(node, ast.Call) and name_of_call(node) in _ROUNDING:
        digits = len(node.args) - (not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) == "np")
        return digits <= 0 and not node.keywords and _is_of(node, names, leaves)
    if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
        return False
    sides = (node.left, node.comparators[0])
    return any(ast.unparse(a) in halves and _is_of(b, names, leaves, plain=plain) for a, b in (sides, sides[::-1]))
