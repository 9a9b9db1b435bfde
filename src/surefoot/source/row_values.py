"""Follows the order of rows of arrays through expressions: indexing, sorting, shuffling, zipping and calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from surefoot.source.loop_body import name_of_call
from surefoot.source.row_orders import (
    ATTRIBUTES,
    DRAWS,
    FILES,
    KEEP,
    LOSSES,
    NO_ROWS,
    PLACES,
    REDUCING,
    REVERSES,
    SORTS,
    Beside,
    Draws,
    Move,
    Rows,
    at,
    dimension,
    display,
    given,
    indices,
    is_named,
    orders_rows,
    part_of,
    path,
)

MOST_BESIDE = 8
"""The most arrays with the same index that are compared."""


@dataclass
class RowValues:
    """The rows of every name and expression of a function or a module."""

    functions: frozenset[str]
    """Functions and classes of the file. They may get arrays that belong together."""
    known: dict[str, Rows] = field(default_factory=dict)
    beside: list[Beside] = field(default_factory=list)
    draws: Draws = field(default_factory=Draws)
    _at_index: dict[str, list[tuple[str, Rows]]] = field(default_factory=dict)
    _read: dict[ast.expr, Rows | None] = field(default_factory=dict)
    """The rows of each expression in this statement, so that each is read once."""
    _of_each: bool = False
    """True while reading the element of a comprehension."""

    def new_statement(self) -> None:
        self._read.clear()

    def value(self, node: ast.expr) -> Rows | None:
        """The rows of an expression; None if they cannot be followed."""
        if path(node) in self.known:
            return self.known[path(node)]
        if node not in self._read:
            self._read[node] = self._expression(node)
        return self._read[node]

    def set(self, name: str, rows: Rows | None) -> None:
        for index, same in list(self._at_index.items()):
            if name in index:
                del self._at_index[index]
            else:
                same[:] = [each for each in same if each[0] != name]
        if name and rows is not None:
            self.known[name] = rows
        else:
            self.known.pop(name, None)

    def bind(self, target: ast.expr, over: ast.expr) -> None:
        """Assigns the loop variables of a loop or comprehension."""
        if isinstance(over, ast.Call) and isinstance(target, ast.Tuple) and name_of_call(over) == "enumerate":
            self.set(path(target.elts[0]), None)
            self.bind(target.elts[1], over.args[0])
            return
        if isinstance(over, ast.Call) and isinstance(target, ast.Tuple) and name_of_call(over) == "zip":
            self.value(over)
            for one, of in zip(target.elts, over.args, strict=False):
                self.bind(one, of)
            return
        of_dict = isinstance(over, ast.Call) and name_of_call(over) in ("items", "keys", "values")
        rows = self.value(over) if not of_dict else None
        if isinstance(target, ast.Tuple) and of_dict:
            for each in target.elts:
                self.set(path(each), None)
        elif isinstance(target, ast.Tuple):
            rows = rows or self.born(over)
            for place, each in enumerate(target.elts):
                self.set(path(each), part_of(rows, place, single=True))
        else:
            self.set(path(target), replace(rows, single=True) if rows and (rows.made or rows.moves) else None)

    def use(self, nodes: Iterable[ast.expr], line: int, *, as_samples: bool = True, many: bool = False) -> None:
        """Records arrays that are used together. With `many`, each of them must have rows."""
        found: list[tuple[str, Rows | None]] = []
        for each in nodes:
            value = each.value if isinstance(each, ast.Starred) else each
            if (over := display(value)) and isinstance(value, ast.ListComp | ast.GeneratorExp):
                found += self.of_several(value, over)
            else:
                found.append((ast.unparse(each), self.value(each)))
        rows = tuple((name, replace(each, single=each.single and not many)) for name, each in found if each)
        if len(rows) > 1:
            self.beside.append(Beside(rows, line, as_samples))

    def of_several(
        self, node: ast.ListComp | ast.GeneratorExp, over: list[ast.expr]
    ) -> Iterator[tuple[str, Rows | None]]:
        """The result of a comprehension for each of a few arrays."""
        for each in over:
            self._read.clear()
            self.set(path(node.generators[0].target), self.value(each))
            yield ast.unparse(each), self.value(node.elt)

    def _expression(self, node: ast.expr) -> Rows | None:
        if isinstance(node, ast.Attribute):
            rows = self.value(node.value) if node.attr not in NO_ROWS else None
            if rows is not None and rows.single:
                return part_of(rows, node.attr, single=True)
            return rows if node.attr in ATTRIBUTES else None
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._comprehension(node)
        if isinstance(node, ast.Starred):
            rows = self.value(node.value)
            return replace(rows, single=False) if rows else None
        if isinstance(node, ast.List | ast.Tuple):
            found = [self.value(each) for each in node.elts]
            many = [each for each in found if each is not None]
            return many[0] if len(many) == 1 else self._derived(many, node)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.IfExp | ast.BoolOp):
            found = [self.value(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
            return self._derived(found, node)
        return None

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Rows | None:
        for each in node.generators:
            self.bind(each.target, each.iter)
        self._of_each, outside = True, self._of_each
        rows = self.value(node.elt) or self._derived([self.value(node.generators[0].iter)], node)
        self._of_each = outside
        return replace(rows, single=False) if rows else None

    def _subscript(self, node: ast.Subscript) -> Rows | None:
        rows, index = self.value(node.value), node.slice
        first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
        if rows and is_named(index):
            return part_of(rows, ast.unparse(index), single=rows.single)
        if rows and first is not index and ast.unparse(first) == ":":
            return replace(rows, base=frozenset(f"{each}[{ast.unparse(index)}]" for each in rows.base))
        if rows and isinstance(first, ast.Slice) and ast.unparse(first) == "::-1":
            return self.moved(rows, "reverse", node)
        by = self._derived(map(self.value, indices(index)), node)
        if rows is None:
            return by
        self._index(first, node, rows)
        if by is None:
            return rows if isinstance(first, ast.Slice) else replace(rows, single=True)
        moves = tuple(replace(move, of=rows.base, made=rows.made, line=node.lineno) for move in by.moves)
        return replace(rows, made=rows.made | by.made, moves=rows.moves + moves, single=rows.single or by.single)

    def _index(self, index: ast.expr, node: ast.Subscript, rows: Rows) -> None:
        if not isinstance(index, ast.Constant):
            same = self._at_index.setdefault(ast.unparse(index), [])
            same.append((ast.unparse(node.value), rows))
            self.beside.append(Beside(tuple(same[-MOST_BESIDE:]), node.lineno))

    def _call(self, node: ast.Call) -> Rows | None:
        name, receiver = name_of_call(node), getattr(node.func, "value", None)
        if name == "zip":
            return self._zipped(node)
        if name in self.functions or name.endswith("Dataset"):
            self.use(given(node), node.lineno, as_samples=name.endswith("Dataset"), many=name.endswith("Dataset"))
        if name in NO_ROWS or name.endswith(LOSSES):
            return None
        if name in PLACES:
            return Rows(base=frozenset({at(node)}))
        own = self.value(receiver) if isinstance(receiver, ast.expr) else None
        first = own or (self.value(node.args[-1 if name == "map" else 0]) if node.args else None)
        order = self._order(node, name, 0 if own else 1)
        if order and (first is None or name in ("argsort", "lexsort", "randperm")):
            return Rows(base=frozenset({order}), moves=(Move(order, frozenset(), node.lineno),))
        if order and first is not None:
            return self.moved(first, order, node)
        if name in REDUCING and dimension(node, 0 if own else 1) in ("", "0"):
            return None
        if name in (*KEEP, "map", *SORTS):
            return first
        rows = self._derived([own, *(self.value(each) for each in given(node))], node)
        return replace(rows, call=ast.unparse(node.func)) if rows else self.born(node)

    def _order(self, node: ast.Call, name: str, skip: int) -> str:
        """The order that a call puts rows into; empty if it does not reorder."""
        if name in DRAWS and given(node):
            return self.draws.order(node)
        if name in SORTS:
            return "sort" if name in ("sorted", "lexsort") or orders_rows(node, skip) else ""
        if name in REVERSES or (name == "flip" and dimension(node, skip) == "0"):
            return "reverse"
        if name == "roll":
            along = next((ast.unparse(e.value) for e in node.keywords if e.arg in ("dims", "axis")), "0")
            return "roll" if len(node.args) <= skip + 1 and along == "0" else ""
        return ""

    def _zipped(self, node: ast.Call) -> Rows | None:
        if len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            return self.value(node.args[0].value)
        self.use(node.args, node.lineno, many=True)
        rows = self._derived([self.value(each) for each in node.args], node)
        return replace(rows, single=False) if rows else None

    def moved(self, rows: Rows, order: str, node: ast.expr) -> Rows:
        if (rows.single and self._of_each) or (order == "reverse" and not rows.made):
            return rows  # the order inside each of many samples, or of numbers that count down
        return replace(rows, moves=(*rows.moves, Move(order, rows.base, node.lineno, rows.made)))

    def _derived(self, found: Iterable[Rows | None], node: ast.expr) -> Rows | None:
        """A value computed from arrays has their order. Returns None if it mixes two orders of the same array."""
        rows = [each for each in found if each is not None and each.base]
        rows = [each for each in rows if each.made or each.moves] or rows
        made = [atom for each in rows for atom in each.made]
        if not rows or (len({each.order for each in rows}) > 1 and len(set(made)) < len(made)):
            return None
        longest = max(rows, key=lambda each: len(each.moves))
        sources = frozenset(atom for each in rows for atom in each.base | each.sources)
        return Rows(frozenset(made), frozenset({at(node)}), longest.moves, all(each.single for each in rows), sources)

    def born(self, node: ast.expr) -> Rows:
        alike = {"file"} if isinstance(node, ast.Call) and name_of_call(node) in FILES else set()
        return Rows(frozenset({at(node)} | alike), frozenset({at(node)}))
