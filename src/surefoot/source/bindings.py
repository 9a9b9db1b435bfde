"""Which statement gave a name its value: the assignments of a function, and the arguments of its calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from surefoot.source.scopes import own_nodes, statement_of

Key = Any
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Branch = (ast.If, ast.Try, ast.While, ast.For)


@dataclass(frozen=True)
class Binding:
    """A statement that gives a name its value: an item of what an expression gives."""

    node: ast.AST
    value: ast.expr | None
    keys: tuple[Key, ...]
    item: bool = False
    """The value is what a loop takes from the expression."""

    @property
    def line(self) -> int:
        return self.node.lineno  # type: ignore[attr-defined]


def reaching(name: str, scope: ast.AST, line: int) -> list[Binding]:
    """The statements that may have given a name its value, seen from a line: mostly one.

    The last one before the line; and the one before that, if a branch may have skipped the last. In a loop, the last
    one of the body may have run in the iteration before.
    """
    now = statement_of(scope, line)
    every = sorted(_bindings(name, scope), key=lambda each: each.line)
    start = now.lineno if now is not None and not isinstance(now, ast.For | ast.While | ast.With | ast.If) else line
    before = [each for each in every if each.line < start or (each.item and holds(each.node, line))]
    carried = _carried(every, scope, line, start)
    if carried and all(isinstance(each.value, ast.Constant) for each in before):
        return [carried[-1]]
    if not before:
        return carried[-1:]
    chosen = [before[-1]]
    if len(before) > 1 and _may_be_skipped(before[-1], scope, line):
        chosen.append(before[-2])
    if isinstance(before[-1].node, ast.AugAssign) and len(before) > 1:
        chosen.append(before[-2])
    return [*chosen, *carried[-1:]] if not any(_in_loop(each, scope, line) for each in before) else chosen


def _carried(every: list[Binding], scope: ast.AST, line: int, start: int) -> list[Binding]:
    """Those that run later in the loop around the line, and so before it in the next iteration."""
    return [each for each in every if each.line >= start and _in_loop(each, scope, line) and not each.item]


def _in_loop(binding: Binding, scope: ast.AST, line: int) -> bool:
    """Are the binding and the line in the body of one loop?"""
    loops = [each for each in own_nodes(scope) if isinstance(each, ast.For | ast.While)]
    return any(holds(each, line) and holds(each, binding.line) and binding.node is not each for each in loops)


def _may_be_skipped(binding: Binding, scope: ast.AST, line: int) -> bool:
    branches = [each for each in own_nodes(scope) if isinstance(each, _Branch) and each is not binding.node]
    return any(holds(each, binding.line) and not holds(each, line) for each in branches)


def holds(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _bindings(name: str, scope: ast.AST) -> Iterator[Binding]:
    for node in own_nodes(scope):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    for keys in _keys_to(target, name):
                        yield Binding(node, value, keys)
            case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name and value is not None:
                yield Binding(node, value, ())
            case ast.AugAssign(target=ast.Name(id=found)) if found == name:
                yield Binding(node, None, ())
            case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                yield Binding(node, value, ())
            case ast.For(target=target, iter=value):
                for keys in _keys_to(target, name):
                    yield Binding(node, value, keys, item=True)
            case ast.comprehension(target=target, iter=value):
                for keys in _keys_to(target, name):
                    yield Binding(value, value, keys, item=True)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append" | "insert"), args=[*_, value]):
                if found == name:
                    yield Binding(node, value, ())


def _keys_to(target: ast.expr, name: str) -> Iterator[tuple[Key, ...]]:
    """How a name is taken from what is assigned: `(1, 0)` for `b` in `a, (b, c) = ...`."""
    if isinstance(target, ast.Name) and target.id == name:
        yield ()
    elif isinstance(target, ast.Tuple | ast.List):
        for number, each in enumerate(target.elts):
            for rest in _keys_to(each, name):
                yield (number, *rest)


def arguments_of(scope: ast.AST | None) -> list[str]:
    return [each.arg for each in (*scope.args.args, *scope.args.kwonlyargs)] if isinstance(scope, FUNCTIONS) else []


def argument_of(
    call: ast.Call, name: str, order: list[str], scope: ast.AST | None
) -> tuple[ast.expr | None, tuple[Key, ...]]:
    """The expression that a call passes as this argument, and what to take from it."""
    for word in call.keywords:
        if word.arg == name:
            return word.value, ()
    number = order.index(name) - (order[:1] == ["self"])
    for position, each in enumerate(call.args[: number + 1]):
        if isinstance(each, ast.Starred):
            return each.value, (number - position,)
    return (call.args[number], ()) if 0 <= number < len(call.args) else (None, ())
