"""Liveness: which assignments of a function or a script give a name a value that nothing reads afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from surefoot.source.scopes import own_nodes

_INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_BY_NAME = {"locals", "globals", "vars", "eval", "exec"}
"""Functions that may read any name."""


@dataclass(frozen=True)
class Store:
    """A name in an assignment."""

    name: ast.Name
    statement: ast.stmt
    overwritten: bool
    """Something else is assigned to the name later, or again in the next iteration of a loop."""


def dead_stores(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module) -> list[Store]:
    """The assignments of a scope whose values are never read, in the order of the source."""
    names = list(own_nodes(scope))
    if any(isinstance(each, ast.Name) and each.id in _BY_NAME for each in names):
        return []
    flow = _Flow(_always_live(names))
    flow.block(scope.body, frozenset())
    dead = [(name, statement) for name, (statement, live) in flow.stores.items() if not live]
    many = [each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    found = [Store(name, statement, _is_overwritten(name, statement, many, names)) for name, statement in dead]
    return sorted(found, key=lambda each: (each.name.lineno, each.name.col_offset))


def _is_overwritten(name: ast.Name, statement: ast.stmt, stored: list[str], nodes: list[ast.AST]) -> bool:
    """Is there a later assignment, or is this one in a loop with another one?"""
    others = [
        each
        for each in nodes
        if isinstance(each, ast.Name) and each.id == name.id and isinstance(each.ctx, ast.Store) and each is not name
    ]
    loops = [each for each in nodes if isinstance(each, ast.For | ast.While) and _holds(each, name)]
    return stored.count(name.id) > 1 and any(
        each.lineno > (statement.end_lineno or 0) or any(_holds(loop, each) for loop in loops) for each in others
    )


def _holds(block: ast.AST, node: ast.AST) -> bool:
    return block.lineno <= node.lineno <= (block.end_lineno or 0)  # type: ignore[attr-defined]


def _always_live(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Names that functions and classes inside read, whenever they run, and those that belong to a scope around."""
    found = set[str]()
    for each in nodes:
        if isinstance(each, _INNER):
            found |= reads(each)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            found |= {*each.names}
        elif isinstance(each, ast.Try):  # a `finally` runs after a `return`, too
            found |= {name for part in each.finalbody for name in reads(part)}
    return frozenset(found)


def reads(node: ast.AST) -> set[str]:
    """The names that are read anywhere inside a node."""
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load | ast.Del)
    }


class _Flow:
    """Walks statements backwards, with the names that are still read after them."""

    def __init__(self, always: frozenset[str]) -> None:
        self.always = always
        self.stores: dict[ast.Name, tuple[ast.stmt, bool]] = {}
        """Every stored name: its statement, and whether its value was read on any way through the code."""
        self._raised: frozenset[str] = frozenset()
        """What handlers around the statement read."""
        self._loops: list[tuple[frozenset[str], frozenset[str]]] = []
        """For each loop around: what is read after `break`, and after `continue`."""

    def block(self, statements: list[ast.stmt], out: frozenset[str]) -> frozenset[str]:
        for each in reversed(statements):
            out = self._statement(each, out) | self._raised
        return out

    def _statement(self, node: ast.stmt, out: frozenset[str]) -> frozenset[str]:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._assigned(node, out)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._read(test, self.block(body, out) | self.block(orelse, out))
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                return self._read(iterated, self._loop(None, target, body, self.block(orelse, out)))
            case ast.While(test=test, body=body, orelse=orelse):
                return self._loop(test, None, body, self.block(orelse, out))
            case ast.With(items=items, body=body):
                inside = self.block(body, out)
                for item in items:
                    if item.optional_vars is not None:
                        inside = self._stored(item.optional_vars, node, inside)
                    inside = self._read(item.context_expr, inside)
                return inside
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                return self._tried(body, handlers, orelse, self.block(finalbody, out))
            case ast.Match(subject=subject, cases=cases):
                ends = [self.block(each.body, out) | reads(each.pattern) for each in cases]
                return self._read(subject, out.union(*ends))
            case ast.Return() | ast.Raise():
                return self._read(node, self._raised)
            case ast.Break() | ast.Continue() if self._loops:
                return self._loops[-1][isinstance(node, ast.Continue)]
        return self._read(node, out)

    def _assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, out: frozenset[str]) -> frozenset[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return out
        after = out
        for each in targets:
            after = self._stored(each, node, after)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in out:
            after |= {node.target.id}  # a sum that nobody reads is not read by adding to it
        return after if node.value is None else self._read(node.value, after)

    def _stored(self, target: ast.expr, node: ast.stmt, out: frozenset[str]) -> frozenset[str]:
        for each in ast.walk(target):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                known = self.stores.get(each, (node, False))[1]
                self.stores[each] = node, known or each.id in out or each.id in self.always
        names = {each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        return (out - names) | reads(target)

    def _read(self, node: ast.AST, out: frozenset[str]) -> frozenset[str]:
        for each in ast.walk(node):
            if isinstance(each, ast.NamedExpr):
                out -= {each.target.id}
        return out | reads(node)

    def _loop(
        self, test: ast.expr | None, target: ast.expr | None, body: list[ast.stmt], out: frozenset[str]
    ) -> frozenset[str]:
        head = out | (reads(test) if test is not None else frozenset())
        while True:
            self._loops.append((out, head))
            inside = self.block(body, head)
            self._loops.pop()
            if target is not None:
                inside = (inside - {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}) | reads(target)
            if inside <= head:
                return head
            head |= inside

    def _tried(
        self, body: list[ast.stmt], handlers: list[ast.ExceptHandler], orelse: list[ast.stmt], out: frozenset[str]
    ) -> frozenset[str]:
        caught = out.union(*(self.block(each.body, out) for each in handlers)) if handlers else out
        around, self._raised = self._raised, self._raised | caught
        inside = self.block(body, self.block(orelse, out))
        self._raised = around
        return inside


def scopes_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.Module]:
    """A module and every function in it."""
    yield tree
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each
