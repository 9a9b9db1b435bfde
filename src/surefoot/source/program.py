"""The user's files as one program: who calls a function, which class an expression is of, what a value is made of."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from surefoot.source.bindings import FUNCTIONS, Binding, Key, argument_of, arguments_of, reaching
from surefoot.source.loop_body import name_of_call
from surefoot.source.parsing import parsed
from surefoot.source.scopes import own_nodes

MOST_NODES = 3000
"""The most expressions that one search looks at."""
_WRAPPING = ("enumerate", "iter", "next", "tqdm", "list", "DataLoader", "cycle", "islice", "prepare")
_RUNS = ("forward", "__call__", "training_step")
_SAME_OBJECT = ("to", "cuda", "cpu", "train", "eval", "double", "float", "half", "requires_grad_")
"""Methods that return the object they were called on."""
_WRAPPERS = ("compile", "DataParallel", "DistributedDataParallel", "DDP", "deepcopy", "FSDP", "script", "fully_shard")
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class At:
    """A node of a file."""

    node: ast.AST
    file: str

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    def other(self, node: ast.AST) -> At:
        return At(node, self.file)


class Program:
    """Files of the user's, each read and parsed once."""

    def __init__(self, files: Iterable[str]) -> None:
        self.trees = {file: tree for file in dict.fromkeys(files) if (tree := parsed(file)) is not None}
        self._kinds: dict[ast.AST, tuple[At, ...]] = {}

    @cached_property
    def nodes(self) -> list[At]:
        """Every node of every file, in the order of the source."""
        every = [At(node, file) for file, tree in self.trees.items() for node in ast.walk(tree)]
        return sorted(every, key=lambda each: (each.line, getattr(each.node, "col_offset", 0)))

    @cached_property
    def calls(self) -> list[At]:
        return [each for each in self.nodes if isinstance(each.node, ast.Call)]

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: at.node for at in self.nodes for child in ast.iter_child_nodes(at.node)}

    @cached_property
    def classes(self) -> dict[str, At]:
        return {each.node.name: each for each in self.nodes if isinstance(each.node, ast.ClassDef)}

    @cached_property
    def _functions(self) -> dict[str, list[At]]:
        found: dict[str, list[At]] = {}
        for each in self.nodes:
            if isinstance(each.node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(each.node.name, []).append(each)
        return found

    # ---------------------------------------------------------------------------------------------- around a node

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, at: At) -> ast.AST:
        """The function around a node, or its module."""
        held = (each for each in self.above(at.node) if isinstance(each, FUNCTIONS | ast.Module))
        return next(held, self.trees[at.file])

    def statement(self, at: At) -> At:
        """The statement that a node is in."""
        if isinstance(at.node, ast.stmt):
            return at
        return at.other(next((each for each in self.above(at.node) if isinstance(each, ast.stmt)), at.node))

    def block(self, at: At) -> list[ast.stmt] | None:
        """The list of statements that a statement is one of."""
        parent = self._parents.get(at.node)
        lists = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
        return next((each for each in lists if isinstance(each, list) and at.node in each), None)

    def loops(self, at: At) -> list[ast.AST]:
        return [each for each in self.above(at.node) if isinstance(each, ast.For | ast.While)]

    def class_around(self, at: At) -> ast.ClassDef | None:
        return next((each for each in self.above(at.node) if isinstance(each, ast.ClassDef)), None)

    def at_line(self, file: str, line: int) -> At | None:
        """The innermost statement that holds a line; in the head of a block, the block."""
        held = [each for each in self.nodes if each.file == file and isinstance(each.node, ast.stmt)]
        around = [each for each in held if each.line <= line <= (getattr(each.node, "end_lineno", 0) or 0)]
        return max(around, key=lambda each: each.line, default=None)

    # ------------------------------------------------------------------------------------------- names and classes

    def values(self, at: At) -> Iterator[At]:
        """The expressions that a name or an attribute stands for: assignments, arguments of callers, attributes."""
        if isinstance(at.node, ast.Name):
            yield from self._of_name(at, at.node.id)
        elif isinstance(at.node, ast.Attribute):
            yield from self._of_attribute(at, at.node)

    def _of_name(self, at: At, name: str) -> Iterator[At]:
        line = at.line
        for scope in (each for each in (self.scope(at), *self.above(self.scope(at))) if not _is_class(each)):
            if not isinstance(scope, FUNCTIONS | ast.Module):
                continue
            found = reaching(name, scope, line)
            for each in found:
                yield from self._of_binding(at, each)
            if found:
                return
            if name in (order := arguments_of(scope)):
                yield from self._passed(at.other(scope), name, order)
                return
            line = 1 << 30  # of a function around this one, the last value counts

    def _of_binding(self, at: At, binding: Binding) -> Iterator[At]:
        value = binding.value if binding.value is not None else getattr(binding.node, "value", None)
        if value is None:
            return
        if binding.item:
            yield from self._items(at.other(value), binding.keys)
        else:
            yield at.other(_picked(value, binding.keys))

    def _items(self, source: At, keys: tuple[Key, ...]) -> Iterator[At]:
        """What a loop takes from an expression: from a loader, what its data set returns."""
        node = source.node
        if isinstance(node, ast.Call) and name_of_call(node) in _WRAPPING and node.args:
            inner = keys[1:] if name_of_call(node) == "enumerate" else keys
            yield from self._items(source.other(node.args[0]), inner)
            return
        if isinstance(node, ast.Call) and name_of_call(node) == "TensorDataset" and keys:
            yield from (source.other(each) for each in node.args[keys[-1] : keys[-1] + 1])
            return
        for owner in self.classes_of(source):
            gives = [each for each in methods(owner.node) if each.name in ("__getitem__", "__iter__")]
            for end in (value for each in gives for value in returned(owner.other(each))):
                yield end.other(_picked(end.node, keys))
        for value in self.values(source):
            if isinstance(value.node, ast.Call):
                yield from self._items(value, keys)
        yield source

    def _passed(self, function: At, name: str, order: list[str]) -> Iterator[At]:
        for call in self.callers(function)[:4]:
            value, _ = argument_of(call.node, name, order, function.node)  # type: ignore[arg-type]
            if value is not None:
                yield call.other(value)

    def callers(self, function: At) -> list[At]:
        """The calls of a function of the user's, by its name; of `__init__`, those that make an instance."""
        name, owner = getattr(function.node, "name", ""), self.class_around(function)
        if owner is not None and name == "__init__":
            return [each for each in self.calls if name_of_call(each.node) == owner.name]  # type: ignore[arg-type]
        if owner is not None and name in _RUNS:
            return [each for each in self.calls if owner in self._called_on(each)]
        return [each for each in self.calls if name and name_of_call(each.node) == name]  # type: ignore[arg-type]

    def _called_on(self, call: At) -> set[ast.AST]:
        """The classes of the user's that an instance is called of."""
        return {each.node for each in self.classes_of(call.other(call.node.func))}  # type: ignore[attr-defined]

    def _of_attribute(self, at: At, node: ast.Attribute) -> Iterator[At]:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = self.class_around(at)
            owners = [at.other(owner)] if owner is not None else []
        else:
            owners = list(self.classes_of(at.other(node.value)))
        for each in owners:
            yield from (each.other(value) for _, value in attribute_set(each.node, node.attr))

    def classes_of(self, at: At) -> tuple[At, ...]:
        """The classes of the user's that an expression may be an instance of."""
        if at.node not in self._kinds:
            self._kinds[at.node] = ()  # while it is asked for: a name may be made of itself
            self._kinds[at.node] = tuple({each.node: each for each in self._classes_of(at)}.values())
        return self._kinds[at.node]

    def _classes_of(self, at: At) -> Iterator[At]:
        node = at.node
        if isinstance(node, ast.Name) and node.id == "self" and (owner := self.class_around(at)) is not None:
            yield at.other(owner)
        elif isinstance(node, ast.Name | ast.Attribute):
            for value in self.values(at):
                yield from self.classes_of(value)
        elif isinstance(node, ast.Subscript):
            yield from self.classes_of(at.other(node.value))
        elif isinstance(node, ast.Call):
            yield from self._made_by(at, node)

    def _made_by(self, at: At, node: ast.Call) -> Iterator[At]:
        name = name_of_call(node)
        if name in self.classes:
            yield self.classes[name]
        elif isinstance(node.func, ast.Attribute) and name in _SAME_OBJECT:
            yield from self.classes_of(at.other(node.func.value))
        elif name in _WRAPPERS and node.args:
            yield from self.classes_of(at.other(node.args[0]))
        else:
            ends = (value for function in self._functions.get(name, ())[:2] for value in returned(function))
            for value in ends:
                yield from self.classes_of(value)

    def runs(self, at: At) -> Iterator[At]:
        """What a call runs: functions of the user's, or the expression that made a layer of torch."""
        function = at.node.func  # type: ignore[attr-defined]
        if isinstance(function, ast.Lambda):
            yield at.other(function)
        elif isinstance(function, ast.Name) and function.id in self._functions:
            yield from self._functions[function.id][:2]
        else:
            if isinstance(function, ast.Attribute):
                for owner in self.classes_of(at.other(function.value)):
                    yield from (owner.other(each) for each in methods(owner.node) if each.name == function.attr)
            for owner in self.classes_of(at.other(function)):
                yield from (owner.other(each) for each in methods(owner.node) if each.name in _RUNS)
            yield from (
                each for each in self.values(at.other(function)) if isinstance(each.node, ast.Call | ast.Lambda)
            )

    # ------------------------------------------------------------------------------------------ what it is made of

    def made_of(self, at: At) -> Iterator[At]:
        """An expression, then those that its value is made of, nearest first."""
        waiting, seen = deque([at]), set[ast.AST]()
        while waiting and len(seen) < MOST_NODES:
            now = waiting.popleft()
            if now.node in seen:
                continue
            seen.add(now.node)
            yield now
            waiting += self._parts(now)

    def _parts(self, at: At) -> Iterator[At]:
        node = at.node
        if isinstance(node, ast.Call):
            for each in self.runs(at):
                yield from returned(each) if isinstance(each.node, Function) else [each]
        yield from self.values(at)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.AnnAssign):
            yield from [at.other(node.value)] if node.value is not None else []
        elif isinstance(node, ast.Lambda):
            yield at.other(node.body)
        elif isinstance(node, ast.expr):
            yield from (at.other(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            yield from (at.other(each.value) for each in ast.iter_child_nodes(node) if isinstance(each, ast.keyword))
            generators: list[ast.comprehension] = getattr(node, "generators", [])
            yield from (at.other(each.iter) for each in generators)


def _picked(value: ast.AST, keys: tuple[Key, ...]) -> ast.AST:
    """The entry of a written tuple; the whole of anything else."""
    for key in keys:
        if isinstance(value, ast.Tuple | ast.List) and isinstance(key, int) and key < len(value.elts):
            value = value.elts[key]
    return value


def returned(function: At) -> Iterator[At]:
    """What a function returns or yields."""
    if isinstance(function.node, ast.Lambda):
        yield function.other(function.node.body)
    for each in own_nodes(function.node):
        if isinstance(each, ast.Return | ast.Yield) and each.value is not None:
            yield function.other(each.value)


def methods(owner: ast.AST) -> list[ast.FunctionDef]:
    return [each for each in getattr(owner, "body", ()) if isinstance(each, ast.FunctionDef)]


def attribute_set(owner: ast.AST, name: str) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The statements of a class that set `self.name`, and what they set it to."""
    for method in methods(owner):
        for node in own_nodes(method):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    pairs = _pairs(target, node.value)
                    yield from ((node, value) for part, value in pairs if ast.unparse(part) == f"self.{name}")
            elif isinstance(node, ast.Call) and name_of_call(node) in ("register_buffer", "register_parameter"):
                named = node.args[0] if node.args else None
                if isinstance(named, ast.Constant) and named.value == name:
                    yield node, node.args[-1]


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(each, value) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)
