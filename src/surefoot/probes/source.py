"""Source: what the loop around an evaluated forward does with the numbers of its batches, read from the script."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

Loop = ast.For | ast.ListComp | ast.GeneratorExp
_MEANS = ("mean", "fmean", "nanmean", "average")
_PLAIN = ("item", "detach", "cpu", "float", "numpy", "tolist")


@dataclass(frozen=True)
class Line:
    """A line of a file."""

    file: str
    number: int


@dataclass(frozen=True)
class Kept:
    """What a loop makes of its batches: `last`, of which only the last is kept, or `mean`, that counts all alike."""

    kind: str
    name: str
    where: str


def loop_around(stack: Iterable[Line]) -> tuple[Line, Loop, ast.AST] | None:
    """The innermost loop of a stack's lines, from the inside, and the function or module that holds it."""
    for line in stack:
        tree = _parsed(line.file)
        holders = [node for node in ast.walk(tree) if _spans(node, line.number)] if tree else []
        loops = [node for node in holders if isinstance(node, Loop) and not _in_head(node, line.number)]
        if loops:
            loop = max(loops, key=lambda node: node.lineno)
            scopes = [each for each in holders if isinstance(each, ast.FunctionDef | ast.Module)]
            return line, loop, max(scopes, key=lambda node: getattr(node, "lineno", 0))
    return None


def kept_by(loop: Loop, scope: ast.AST, file: str, means: set[int]) -> Iterator[Kept]:
    """What is kept of the batches of a loop; `means` are lines on which a loss took the mean of its batch."""
    body = _Body(loop, means)
    after = [node for node in ast.walk(scope) if getattr(node, "lineno", 0) > (loop.end_lineno or 0)]
    if isinstance(loop, ast.For):
        for name in body.last():
            if any(isinstance(node, ast.Name) and node.id == name for node in after) and not _set_in(after, name):
                yield Kept("last", name, f"{file}:{body.assigned[name].lineno}")
        gathered = body.gathered()
    else:
        gathered = {_name_of(loop, scope): loop} if body.is_mean(loop.elt) else {}
        after = [node for node in ast.walk(scope) if getattr(node, "lineno", 0) >= loop.lineno]
    for name, place in gathered.items():
        if any(_counts_alike(node, name, body) for node in after):
            yield Kept("mean", name, f"{file}:{place.lineno}")


class _Body:
    """The body of a loop: what it assigns, adds up and counts."""

    def __init__(self, loop: Loop, means: set[int]) -> None:
        self.loop, self.means = loop, means
        body = loop.body if isinstance(loop, ast.For) else [loop.elt]
        self.nodes = [node for part in body for node in ast.walk(part)]
        self.iterated = _words(loop.iter) if isinstance(loop, ast.For) else _words(loop.generators[0].iter)
        self.varying = {
            each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        self.assigned: dict[str, ast.Assign] = {}
        self.added: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._assign(node, node.targets[0].id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
                self.added.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.Call) and _is_method(node, "append") and node.args:
                self.added.setdefault(_root(node.func), []).append(node.args[0])

    def _assign(self, node: ast.Assign, name: str) -> None:
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add) and _root(node.value.left) == name:
            self.added.setdefault(name, []).append(node.value.right)
        else:
            self.assigned[name] = node

    def last(self) -> Iterator[str]:
        """Numbers of a batch that the next batch overwrites, and nothing in the loop reads."""
        for name, node in self.assigned.items():
            read = any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in self.nodes)
            if not read and self.is_number(node.value):
                yield name

    def gathered(self) -> dict[str, ast.expr]:
        """Sums and lists of means of batches."""
        return {name: parts[0] for name, parts in self.added.items() if all(map(self.is_mean, parts))}

    def is_in(self, value: ast.expr, name: str) -> bool:
        """Does an expression hold what was gathered, by its name or as it stands?"""
        return name in _words(value) if name else any(each is self.loop for each in ast.walk(value))

    def counts(self, name: str) -> bool:
        """Is this a counter of batches?"""
        return any(isinstance(each, ast.Constant) and each.value == 1 for each in self.added.get(name, ()))

    def is_mean(self, value: ast.expr, depth: int = 0) -> bool:
        """Is this the mean of a batch, and not multiplied by how many samples it has?"""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            sides = (value.left, value.right)
            return any(map(self._is_fixed, sides)) and any(self.is_mean(side, depth) for side in sides)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            return not isinstance(value.right, ast.Constant)
        if isinstance(value, ast.Call) and _is_method(value, *_PLAIN):
            assert isinstance(value.func, ast.Attribute)
            return self.is_mean(value.func.value, depth)
        if isinstance(value, ast.Call) and _is_method(value, *_MEANS):
            return True
        known = self.assigned.get(_root(value)) if isinstance(value, ast.Name | ast.Attribute) else None
        if known is not None and depth < 3:
            return self.is_mean(known.value, depth + 1)
        called = isinstance(value, ast.Call) or known is not None
        lines = range(value.lineno, (value.end_lineno or value.lineno) + 1)
        return called and not self.means.isdisjoint(lines)

    def _is_fixed(self, value: ast.expr) -> bool:
        """Is this the same for all batches: a number, or a name that nothing in the loop sets?"""
        calls = any(isinstance(each, ast.Call) for each in ast.walk(value))
        return not calls and self.varying.isdisjoint(_words(value))

    def is_number(self, value: ast.expr) -> bool:
        """Is this one number of a batch: a mean, a sum, or what is made of one?"""
        return self.is_mean(value) or any(
            isinstance(each, ast.Call) and _is_method(each, "item", "sum", *_MEANS) for each in ast.walk(value)
        )


def _counts_alike(node: ast.AST, name: str, body: _Body) -> bool:
    """Does this divide what was gathered by the number of batches, or take its mean?"""
    if isinstance(node, ast.Call) and _is_method(node, *_MEANS):
        return body.is_in(node, name)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and body.is_in(node.left, name):
        return _is_count(node.right, name, body)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and _root(node.target) == name:
        return _is_count(node.value, name, body)
    return False


def _is_count(by: ast.expr, name: str, body: _Body) -> bool:
    """The number of batches: a counter, or the length of what was run over or of what was gathered."""
    if isinstance(by, ast.Call) and _root(by.func) == "len" and by.args:
        return isinstance(by.args[0], ast.Name) and by.args[0].id in body.iterated | {name}
    return isinstance(by, ast.Name) and body.counts(by.id)


def _name_of(loop: Loop, scope: ast.AST) -> str:
    """The name that a comprehension is kept under."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.value is loop and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
    return ""


def _set_in(nodes: list[ast.AST], name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store) for each in nodes)


def _is_method(call: ast.Call, *names: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _words(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {"sum", "enumerate", "tqdm"}


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", line + 1), getattr(node, "end_lineno", 0) or 0
    return isinstance(node, ast.Module) or first <= line <= last


def _in_head(loop: Loop, line: int) -> bool:
    """Is a line in what a loop runs over, and not in what it runs?"""
    if isinstance(loop, ast.For):
        return line < loop.body[0].lineno
    return not any(isinstance(node, ast.Call) for node in ast.walk(loop.elt))


@cache
def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
