"""Follows the order of rows of arrays through the statements of a function or module."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from surefoot.source.loop_body import name_of_call
from surefoot.source.row_orders import Rows, at, calls, display, orders_rows, part_of, path
from surefoot.source.row_values import RowValues


@dataclass
class Scope:
    """A function or a module, read from top to bottom."""

    values: RowValues

    def read(self, statements: Iterable[ast.stmt]) -> None:
        for each in statements:
            if not isinstance(each, ast.FunctionDef | ast.ClassDef):
                self._statement(each)

    def _statement(self, node: ast.stmt) -> None:
        self.values.new_statement()
        for call in calls(node) if not hasattr(node, "body") else ():
            self.values.draws.seed(call)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._in_place(node.value)
        elif isinstance(node, ast.Return | ast.Expr) and node.value is not None:
            self._handed_out(node.value)
        elif isinstance(node, ast.For):
            self._loop(node)
        elif isinstance(node, ast.If):
            self._branches(node)
        else:
            for name in ("test", "value"):
                if isinstance(getattr(node, name, None), ast.expr):
                    self.values.value(getattr(node, name))
            for name in ("body", "orelse", "handlers", "finalbody"):
                self.read(part for part in getattr(node, name, ()) if isinstance(part, ast.stmt))

    def _branches(self, node: ast.If) -> None:
        """After an `if`, assignments of the first branch win. Others come from the second branch."""
        before = dict(self.values.known)
        self.read(node.body)
        here, self.values.known = self.values.known, before
        was = dict(before)
        self.read(node.orelse)
        self.values.known |= {name: rows for name, rows in here.items() if was.get(name) != rows}

    def _handed_out(self, value: ast.expr) -> None:
        value = value.value if isinstance(value, ast.Yield) and value.value else value
        if isinstance(value, ast.Tuple | ast.Dict):
            parts = value.elts if isinstance(value, ast.Tuple) else value.values
            self.values.use(parts, value.lineno)
        else:
            self.values.value(value)

    def _loop(self, node: ast.For) -> None:
        if isinstance(node.iter, ast.Tuple | ast.List) and isinstance(node.target, ast.Name):
            for each in node.iter.elts:
                self._loop_over(node, node.target.id, each)
        else:
            self.values.bind(node.target, node.iter)
            self.read(node.body)
            self._join(node)

    def _loop_over(self, node: ast.For, name: str, each: ast.expr) -> None:
        """Reads the body for one of several arrays. If the body reorders it in place, the array itself is reordered."""
        self.values.set(name, before := self.values.value(each))
        for statement in node.body:
            self._statement(statement)
            moved = isinstance(statement, ast.Expr) and self.values.known.get(name) != before
            if moved:
                self.values.set(path(each), self.values.known.get(name))

    def _join(self, loop: ast.For) -> None:
        """Lists that are filled in the same loop belong together."""
        for call in calls(loop):
            if name_of_call(call) in ("append", "extend") and isinstance(call.func, ast.Attribute):
                name = path(call.func.value)
                rows = self.values.known.get(name) or Rows(base=frozenset({f"{name}@{loop.lineno}"}))
                self.values.set(name, replace(rows, made=rows.made | {f"loop@{loop.lineno}"}))

    def _in_place(self, call: ast.Call) -> None:
        name = name_of_call(call)
        given = call.args[0] if name == "shuffle" and call.args else getattr(call.func, "value", None)
        rows = self.values.value(given) if isinstance(given, ast.expr) and path(given) else None
        if rows is not None and name == "shuffle" and len(call.args) == 1:
            self.values.set(path(given), self.values.moved(rows, self.values.draws.order(call), call))
        elif rows is not None and name in ("sort", "reverse") and orders_rows(call, 0):
            self.values.set(path(given), self.values.moved(rows, name, call))
        else:
            self.values.value(call)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Tuple | ast.List):
            self.values.set(path(target), self.values.value(value))
        else:
            for each, rows in zip(target.elts, self._parts(value, len(target.elts)), strict=False):
                self.values.set(path(each), rows)

    def _parts(self, value: ast.expr, count: int) -> list[Rows | None]:
        """The values that are assigned to several names at once."""
        if isinstance(value, ast.Tuple | ast.List):
            return [self.values.value(each) for each in value.elts]
        if (over := display(value)) and isinstance(value, ast.ListComp | ast.GeneratorExp):
            return [rows for _, rows in self.values.of_several(value, over)]
        rows = self.values.value(value) or self.values.born(value)
        if isinstance(value, ast.Call) and name_of_call(value) == "sort" and count == 2:
            return [rows, Rows(base=frozenset({at(value)}), moves=rows.moves[-1:])]
        single = isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice)
        return [part_of(rows, place, single=single) for place in range(count)]
