"""Reads from the source what a loop over batches assigns, adds up and counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

Loop = ast.For | ast.ListComp | ast.GeneratorExp
_MEANS = ("mean", "fmean", "nanmean", "average")
_PLAIN = ("item", "detach", "cpu", "float", "numpy", "tolist", "sqrt", "exp")
_GATHERING = ("append", "add", "update", "push", "extend")
_LENGTHS = ("len", "size", "numel")


class Body:
    """The body of a loop: what it assigns, adds up and counts."""

    def __init__(self, loop: Loop, scope: ast.AST, tree: ast.Module | None, means: set[int]) -> None:
        self.loop, self.scope, self.tree, self.means = loop, scope, tree, means
        parts = loop.body if isinstance(loop, ast.For) else [loop.elt]
        self.nodes = [node for part in parts for node in ast.walk(part)]
        iterated = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
        self.iterated = {ast.unparse(each) for each in ast.walk(iterated) if isinstance(each, ast.expr)}
        self.varying = {
            each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        self.assigned: dict[str, ast.expr] = {}
        self.added: dict[str, list[ast.expr]] = {}
        self.metered: set[str] = set()
        """Names of meters: a method such as `update` is called on them for every batch."""
        stores = [node for node in self.nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
        self._set_into = {node.value for node in stores}
        for node in self.nodes:
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple):
                values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
                for each, part in zip(target.elts, values, strict=False):
                    if part is not value or _names_a_number(key(each)):
                        self._assign(each, part)
            else:
                self._assign(target, value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            self.added.setdefault(key(node.target), []).append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            self._tell(node, node.func)

    def _tell(self, call: ast.Call, method: ast.Attribute) -> None:
        if method.attr in _GATHERING and len(call.args) == 1 and not call.keywords:
            name = key(method.value)
            self.added.setdefault(name, []).append(call.args[0])
            self.metered |= {name} if method.attr in ("update", "add", "push") else set()

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        name = key(target)
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
            self.added.setdefault(key(target.value), []).append(value)
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and key(value.left) == name:
            self.added.setdefault(name, []).append(value.right)
        elif name:
            self.assigned[name] = value

    @cached_property
    def outside(self) -> dict[str, ast.expr]:
        """What the function around the loop assigns outside the loop."""
        inside = set(self.nodes)
        return {
            key(node.targets[0]): node.value
            for node in ast.walk(self.scope)
            if isinstance(node, ast.Assign) and node not in inside
        }

    @cached_property
    def counted(self) -> set[str]:
        """The batch index from `enumerate`."""
        if not isinstance(self.loop, ast.For) or not isinstance(self.loop.target, ast.Tuple):
            return set()
        numbered = any(each.startswith("enumerate(") for each in self.iterated)
        return {key(self.loop.target.elts[0])} if numbered else set()

    def loop_names(self) -> set[str]:
        """The names that a loop gives to each batch."""
        return words(self.loop.target) - self.counted if isinstance(self.loop, ast.For) else set()

    def last(self) -> Iterator[tuple[str, ast.expr]]:
        """Numbers that the next batch overwrites. The loop at most prints them or adds them to a sum."""
        for name, value in self.assigned.items():
            if not self.is_number(value) or name in self.added:
                continue
            alone = words(value).isdisjoint({name, *self.added}) and self.is_mean(value)
            if not self._is_read(name) or (alone and self.sums_of(name)):
                yield name, value

    def sums_of(self, name: str) -> set[str]:
        """The sums that a name is added to."""
        return {target for target, parts in self.added.items() if any(name in words(each) for each in parts)}

    def _is_read(self, name: str) -> bool:
        shown = {part for node in self.nodes if _only_shows(node) for part in ast.walk(node)} | self._set_into
        return any(is_read(node, name) for node in self.nodes if node not in shown)

    def begun_anew(self) -> Iterator[tuple[str, ast.expr]]:
        """Sums and lists that are reset in every batch."""
        firsts = self.loop.body if isinstance(self.loop, ast.For) else []
        direct = {value for each in firsts if isinstance(each, ast.Assign) for value in _values(each.value)}
        for name, value in self.assigned.items():
            if _is_empty(value) and value in direct and any(map(self.is_number, self.added.get(name, ()))):
                yield name, value

    def gathered(self) -> dict[str, ast.expr]:
        """Sums and lists of batch means."""
        return {name: parts[0] for name, parts in self.added.items() if name and all(map(self.is_mean, parts))}

    def running_means(self) -> Iterator[tuple[str, ast.expr]]:
        """Running means that divide by the number of batches so far."""
        kept = [(name, value) for name, parts in self.added.items() for value in parts]
        for name, value in [*kept, *self.assigned.items()]:
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
                parts = [each for each in ast.walk(value.left) if isinstance(each, ast.expr)]
                by = [value.right.left] if isinstance(value.right, ast.BinOp) else [value.right]
                by_batches = any(key(each) in self.counted or self.counts(key(each)) for each in by)
                if by_batches and any(uses(each, name) for each in parts) and any(map(self.is_mean, parts)):
                    yield name, value

    def counts(self, name: str) -> bool:
        """Is this a counter of batches?"""
        return any(isinstance(each, ast.Constant) and each.value == 1 for each in self.added.get(name, ()))

    def is_mean(self, value: ast.expr, depth: int = 0) -> bool:
        """Is this the mean of a batch, not multiplied by its number of samples?"""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            sides = (value.left, value.right)
            return any(map(self._is_fixed, sides)) and any(self.is_mean(side, depth) for side in sides)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            return not isinstance(value.right, ast.Constant) or self.is_mean(value.left, depth)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
            return self.is_mean(value.left, depth) or self.is_mean(value.right, depth)
        if isinstance(value, ast.Call) and name_of_call(value) == "float" and value.args:
            return self.is_mean(value.args[0], depth)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _PLAIN:
            return any(self.is_mean(each, depth) for each in (value.func.value, *value.args))
        if isinstance(value, ast.Call) and name_of_call(value) in _MEANS:
            return True
        if isinstance(value, ast.Subscript | ast.Attribute) and key(value) not in self.assigned:
            return _names_a_number(ast.unparse(value)) and self.is_mean(value.value, depth)
        known = self.assigned.get(key(value))
        if known is not None and depth < 3:
            return self.is_mean(known, depth + 1)
        lines = range(value.lineno, (value.end_lineno or value.lineno) + 1)
        called = isinstance(value, ast.Call) and name_of_call(value) not in ("sum", *_LENGTHS)
        return called and (not self.means.isdisjoint(lines) or self._returns_a_mean(value))

    def _returns_a_mean(self, call: ast.expr) -> bool:
        """Does a function of the same file always return a mean?"""
        name = name_of_call(call) if isinstance(call, ast.Call) else ""
        defined = [each for each in ast.walk(self.tree) if isinstance(each, ast.FunctionDef)] if self.tree else []
        returned = [
            (each.value, function)
            for function in defined
            if function.name == name
            for each in ast.walk(function)
            if isinstance(each, ast.Return) and each.value is not None
        ]
        return bool(returned) and all(_is_one_mean(*each) for each in returned)

    def _is_fixed(self, value: ast.expr) -> bool:
        """Is this the same for all batches: a constant, or a name that the loop never assigns?"""
        calls = any(isinstance(each, ast.Call) for each in ast.walk(value))
        return not calls and self.varying.isdisjoint(words(value))

    def is_number(self, value: ast.expr) -> bool:
        """Is this a single number per batch: a mean, a sum, or computed from one?"""
        return self.is_mean(value) or any(
            isinstance(each, ast.Call) and name_of_call(each) in ("item", "sum", *_MEANS) for each in ast.walk(value)
        )


def _is_one_mean(value: ast.expr, function: ast.FunctionDef, depth: int = 0) -> bool:
    """Does a function return one number that is divided by a count, or a mean over everything?"""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Div)
    if isinstance(value, ast.Call):
        name, method = name_of_call(value), isinstance(value.func, ast.Attribute)
        if name == "float" and value.args:
            return _is_one_mean(value.args[0], function, depth)
        if isinstance(value.func, ast.Attribute) and name in _PLAIN:
            return _is_one_mean(value.func.value, function, depth)
        library = method and ast.unparse(value.func).split(".")[0] in ("torch", "np", "numpy")
        return name in _MEANS and not value.keywords and len(value.args) == (1 if library or not method else 0)
    assigns = [each for each in ast.walk(function) if isinstance(each, ast.Assign)]
    set_to = [each.value for each in assigns if key(value) and key(each.targets[0]) == key(value)]
    return depth < 2 and len(set_to) == 1 and _is_one_mean(set_to[0], function, depth + 1)


def key(node: ast.AST) -> str:
    """A key for a name, an attribute or a constant item of a dict; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and key(node.value):
        return f"{key(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and key(node.value):
        return f"{key(node.value)}[{node.slice.value!r}]"
    return ""


def uses(node: ast.AST, name: str) -> bool:
    """Is this the node for a key, or the dict that contains it?"""
    found = key(node)
    return bool(found) and (found == name or name.startswith(f"{found}["))


def is_read(node: ast.AST, name: str) -> bool:
    return uses(node, name) and isinstance(getattr(node, "ctx", None), ast.Load)


def name_of_call(call: ast.Call) -> str:
    """The last part of the called name."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def assigned(assign: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value."""
    target, value = assign.targets[0], assign.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def words(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _names_a_number(name: str) -> bool:
    """Does the name, one of several results of a call, stand for a single number? Others may be scores or labels."""
    last = re.split(r"[.\[]", name)[-1].strip("']").lower()
    return last.isdigit() or re.search("loss|acc|err|score|metric|nll|iou|dice", last) is not None


def _is_empty(value: ast.expr) -> bool:
    return (isinstance(value, ast.List) and not value.elts) or (isinstance(value, ast.Constant) and not value.value)


def _values(value: ast.expr) -> list[ast.expr]:
    return list(value.elts) if isinstance(value, ast.Tuple) else [value]


def _only_shows(node: ast.AST) -> bool:
    """Is this a call that discards its result and collects nothing?"""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return name_of_call(node.value) not in _GATHERING
