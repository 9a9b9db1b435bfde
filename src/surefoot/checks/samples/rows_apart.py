"""Finds arrays that belong together of which the source shuffles or sorts only one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import islice

from surefoot.checks.facts.samples import Parted
from surefoot.source.loop_body import name_of_call
from surefoot.source.parsing import parsed
from surefoot.source.row_orders import BY_RULE, REVERSES, SORTS, Beside, Rows, calls, path
from surefoot.source.row_scopes import Scope
from surefoot.source.row_values import RowValues

_REORDERING = (
    *SORTS,
    *REVERSES,
    "randperm",
    "permutation",
    "permuted",
    "shuffle",
    "reverse",
    "roll",
    "flip",
    "sort_values",
)


def ordered_apart(file: str) -> Iterator[Parted]:
    """Where a file reorders only one of two arrays that were made together."""
    for line, moved, left in rows_apart(file):
        yield Parted(f"{file}:{line}", f"`{moved}` is reordered, but `{left}`, which was made with it, is not")


@cache
def reorders(file: str) -> bool:
    """Does a file reorder anything itself, without a loader?"""
    tree = parsed(file)
    if tree is None or not tree.body:
        return True
    names = {name_of_call(each) for each in calls(tree)}
    steps = (ast.unparse(each.step) for each in ast.walk(tree) if isinstance(each, ast.Slice) and each.step is not None)
    turned = any(step.startswith("-") for step in steps)
    return turned or not names.isdisjoint(_REORDERING)


@cache
def rows_apart(file: str) -> tuple[tuple[int, str, str], ...]:
    """The first line of a file that reorders only one array: the line, that array, and the one left as it was."""
    tree = parsed(file)
    if tree is None:
        return ()
    try:
        return tuple(islice((found for scope in _scopes(tree) for found in _apart(scope.beside)), 1))
    except RecursionError:
        return ()


def _scopes(tree: ast.Module) -> Iterator[RowValues]:
    named = frozenset(
        each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name[0] != "_"
    )
    yield (module := _read(tree, named, {}))
    for node in tree.body:
        yield from _inside(node, named, module.known)


def _inside(
    node: ast.stmt, named: frozenset[str], known: dict[str, Rows], kept: set[str] | None = None
) -> Iterator[RowValues]:
    """Yields a function and the functions inside it. In a class, methods know the attributes set in `__init__`."""
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        for each in sorted(methods, key=lambda method: method.name != "__init__"):
            for scope in _inside(each, named, known, _with_rows(node)):
                yield scope
                known = {**known, **{name: rows for name, rows in scope.known.items() if name.startswith("self.")}}
    elif isinstance(node, ast.FunctionDef) and node.name != "forward":
        yield (scope := _read(node, named, known, kept))
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef) and inner is not node and inner.name != "forward":
                yield _read(inner, named, scope.known)


def _read(
    node: ast.Module | ast.FunctionDef, named: frozenset[str], known: dict[str, Rows], kept: set[str] | None = None
) -> RowValues:
    values = RowValues(named, dict(known))
    if isinstance(node, ast.FunctionDef):
        made, many = frozenset({f"{node.name}@{node.lineno}"}), _with_rows(node) | _kept(node, kept or set())
        for each in (*node.args.args, *node.args.kwonlyargs):
            values.known.pop(each.arg, None)
            if each.arg in many:
                values.known[each.arg] = Rows(made, frozenset({f"{node.name}.{each.arg}"}))
    Scope(values).read(node.body)
    return values


def _kept(function: ast.FunctionDef, attributes: set[str]) -> set[str]:
    """The names that a function stores in these attributes."""
    found = set()
    for each in ast.walk(function):
        if (
            isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Tuple)
            and isinstance(each.value, ast.Tuple)
        ):
            pairs = list(zip(each.targets[0].elts, each.value.elts, strict=False))
        else:
            pairs = [(each.targets[0], each.value)] if isinstance(each, ast.Assign) else []
        found |= {path(value) for target, value in pairs if path(target) in attributes}
    return found


def _with_rows(function: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """Names that a function or class measures, indexes or iterates over: they hold more than one sample."""
    found: list[ast.expr] = []
    for each in ast.walk(function):
        if isinstance(each, ast.Subscript):
            found.append(each.value)
        elif isinstance(each, ast.For | ast.comprehension):
            found.append(each.iter)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in ("len", "zip"):
            found += each.args
    return {path(each) for each in found} - {""}


def _apart(uses: list[Beside]) -> Iterator[tuple[int, str, str]]:
    for use in uses:
        for name, moved in use.rows:
            for other, left in use.rows:
                by_chance = use.as_samples or (moved.moves and moved.moves[-1].order not in BY_RULE)
                if by_chance and _is_parted(moved, left) and not _is_kept_too(moved, left, use, uses):
                    yield moved.moves[-1].line, name, other


def _is_parted(moved: Rows, left: Rows) -> bool:
    """Was one of two related arrays reordered and the other not, and was it not computed from the other?"""
    if left.single or moved.base & left.base or not any(move.made & left.made for move in moved.moves):
        return False
    if moved.order == left.order or len(moved.moves) < len(left.moves):
        return False
    by_rule = moved.moves[-1].order in BY_RULE or moved.call == left.call != ""
    of_left = (
        left.base | left.sources if by_rule else left.base
    )  # sorting what was computed from the other may be intended
    return not any(move.of & of_left for move in moved.moves)


def _is_kept_too(moved: Rows, left: Rows, use: Beside, uses: list[Beside]) -> bool:
    """Is the reordered array also used in its old order, next to itself or later?"""
    if any(each.base & moved.base and each.order != moved.order for _, each in use.rows):
        return True
    later = (each for other in uses if other.line > moved.moves[-1].line for _, each in other.rows[-1:])
    return any(each.base == moved.base and each.order == left.order for each in later)
