"""Reads from one expression how it orders the rows of an array."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from surefoot.source.loop_body import name_of_call

DRAWS = ("randperm", "permutation", "permuted", "sample")
SORTS = ("sort", "sorted", "argsort", "msort", "lexsort")
REVERSES = ("reversed", "flipud")
PLACES = ("arange", "range")
KEEP = (
    *("tensor", "as_tensor", "from_numpy", "array", "asarray", "numpy", "tolist", "list", "tuple", "stack", "cat"),
    *("concatenate", "vstack", "pad_sequence", "copy", "deepcopy", "clone", "contiguous", "detach", "to", "type"),
    *("astype", "float", "long", "int", "double", "half", "bool", "unsqueeze", "squeeze", "view", "reshape", "iter"),
    *("FloatTensor", "LongTensor", "cpu", "cuda", "ravel", "flatten", "expand_dims", "requires_grad_"),
)
"""Calls that return the same rows in another form."""
NO_ROWS = (
    *("len", "max", "min", "set", "unique", "Counter", "print", "shape", "size", "numel", "isinstance", "item"),
    *("default_rng", "Generator", "RandomState", "Random", "manual_seed", "seed", "DataLoader", "enumerate"),
)
LOSSES = ("loss", "entropy", "with_logits", "grad")
REDUCING = ("mean", "std", "sum", "var", "median", "any", "all", "quantile", "amax", "amin", "norm", "prod")
FILES = ("load", "loadtxt", "genfromtxt", "read", "fromfile", "memmap", "read_csv", "listdir", "glob")
"""Arrays read by these calls belong together, even if they come from two files."""
_SEEDS = ("seed", "manual_seed", "seed_all", "set_seed", "seed_everything", "default_rng", "Random", "RandomState")
_STATES = ("getstate", "setstate", "get_state", "set_state", "get_rng_state", "set_rng_state")
BY_RULE = ("sort", "reverse", "roll")
"""Orders that are not random."""
ATTRIBUTES = ("T", "mT", "values", "data", "array")


@dataclass(frozen=True)
class Move:
    """A new order of rows: its kind, the arrays that were reordered and their origin, and the line."""

    order: str
    of: frozenset[str]
    line: int
    made: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rows:
    """An array: its origin, its identity among arrays of that origin, and the order of its rows."""

    made: frozenset[str] = frozenset()
    base: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()
    single: bool = False
    """Can it be a single sample, whose rows nothing else has?"""
    sources: frozenset[str] = frozenset()
    """Everything that it was computed from. `call` is the last call."""
    call: str = ""

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(move.order for move in self.moves)


@dataclass(frozen=True)
class Beside:
    """Arrays that are used together row by row, with their names in the source."""

    rows: tuple[tuple[str, Rows], ...]
    line: int
    as_samples: bool = True
    """False if they are arguments of a function, which may not use them row by row."""


@dataclass
class Draws:
    """The orders that random generators produce."""

    _drawn: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For each generator: its last seed, and the number of draws since."""

    def seed(self, call: ast.Call) -> None:
        name = name_of_call(call)
        if name in _SEEDS or name in _STATES:
            text = "" if name in _STATES else ast.unparse(call)
            for each in self._drawn:
                self._drawn[each] = (text, 0)
            self._drawn[""] = (text, 0)

    def order(self, call: ast.Call) -> str:
        """The order that a generator draws. It repeats only after the generator is seeded again."""
        seeds = [each for each in calls(call) if name_of_call(each) in _SEEDS]
        if seeds:
            return ast.unparse(seeds[0])
        told = [ast.unparse(each.value) for each in call.keywords if each.arg in ("generator", "random_state")]
        source = told[0] if told else ast.unparse(call.func).rpartition(".")[0]
        seeded, count = self._drawn.get(source, self._drawn.get("", ("", 0)))
        self._drawn[source] = (seeded, count + 1)
        return f"{source if not seeded else ''} {seeded} {count}"


def path(node: ast.expr | None) -> str:
    """A name, an attribute or an item of a dict, as in the source; empty for computed values."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and path(node.value):
        return f"{path(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return f"{path(node.value)}[{node.slice.value!r}]" if path(node.value) else ""
    return ""


def display(node: ast.expr) -> list[ast.expr]:
    """The arrays that a comprehension iterates over, if they are listed in the source."""
    over = node.generators[0].iter if isinstance(node, ast.ListComp | ast.GeneratorExp) else None
    return over.elts if isinstance(over, ast.Tuple | ast.List) else []


def part_of(rows: Rows, place: int | str, *, single: bool) -> Rows:
    return replace(rows, base=frozenset(f"{each}.{place}" for each in rows.base), single=single)


def orders_rows(call: ast.Call, skip: int) -> bool:
    """Does a sort reorder the rows instead of the values inside each row?"""
    return dimension(call, skip) in ("", "0")


def dimension(call: ast.Call, skip: int) -> str:
    named = [each.value for each in call.keywords if each.arg in ("dim", "axis", "dims")]
    return ast.unparse((named or call.args[skip:])[0]) if named or call.args[skip:] else ""


def at(node: ast.expr) -> str:
    return f"{node.lineno}:{node.col_offset}"


def given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def is_named(index: ast.expr) -> bool:
    """Is this a column name or a list of column names?"""
    names = index.elts if isinstance(index, ast.List) else [index]
    return all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in names)


def indices(index: ast.expr) -> Iterator[ast.expr]:
    """The parts of an index that matter: the starts of slices, and no constants."""
    for each in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(each, ast.Slice) and each.lower is not None:
            yield each.lower
        elif not isinstance(each, ast.Slice | ast.Constant):
            yield each


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))
