"""Where the user's code defines a module or a parameter, and what a model calls it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from surefoot.debug.errors.stack import Spot, place
from surefoot.records.explanation import Place
from surefoot.source.owners import is_users
from surefoot.source.parsing import parsed
from surefoot.source.scopes import own_nodes

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Definitions:
    """Names and lines of the modules that were running, from the outermost module of a traceback inwards."""

    def __init__(self, stack: list[Spot]) -> None:
        self._stack = stack
        running = [spot.names.get("self") for spot in stack]
        self.running = [each for each in running if isinstance(each, nn.Module)]
        values = [value for spot in stack for value in spot.names.values()]
        inside = [each for value in values if not isinstance(value, nn.Module) for each in _attributes(value)]
        held = [value for value in (*values, *inside) if isinstance(value, nn.Module)]
        self._roots = [*self.running[:1], *held, *self.running]

    def path(self, module: nn.Module) -> str:
        """The name of a module in its model; empty for the model itself."""
        return next((name for name, _ in self._parents(module)), "")

    def _parents(self, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """The name of a module in each model that holds it, and that model."""
        for root in self._roots:
            for name, each in root.named_modules():
                if each is module:
                    yield name, root

    def name_of(self, value: Any) -> str:
        """The name of a parameter or buffer in its model; empty if no model holds it."""
        for root in self._roots:
            for name, each in (*root.named_parameters(), *root.named_buffers()):
                if each is value:
                    return name
        return ""

    def of_value(self, value: Any) -> tuple[Place, ...]:
        """The lines that define a parameter or buffer: those of its module, or its own in a class of the user's."""
        for root in self._roots:
            for path, module in root.named_modules():
                for name, each in own_tensors(module):
                    if each is value:
                        return self.of_attribute(module, name) or self._of_path(root, path)
        return ()

    def of_module(self, module: nn.Module) -> tuple[Place, ...]:
        """The lines that define a module, nearest first."""
        for path, root in self._parents(module):
            if lines := self._of_path(root, path):
                return lines
        return ()

    def of_attribute(self, module: nn.Module, name: str) -> tuple[Place, ...]:
        """The line of a user's class that sets an attribute of a module, and what set the numbers in it."""
        found = _setting(type(module), name)
        if found is None:
            return ()
        file, node, function = found
        lines = [place(file, node.lineno)]
        words, assigned = _expanded(_words(node.value), function, node.lineno)
        lines += [place(file, each) for each in assigned]
        if _parameters(function) & words:
            lines += next((list(self._of_path(root, path)) for path, root in self._parents(module)), [])
            lines += self._defaults(type(module), file, function, words)
        return tuple(dict.fromkeys(lines))

    def _defaults(self, kind: type, file: str, function: ast.FunctionDef, words: set[str]) -> list[Place]:
        """The lines of defaults of these parameters, if the only call of the class does not pass them."""
        calls = self._call_nodes(kind)
        if len(calls) != 1 or function.name != "__init__":
            return []
        names = [each.arg for each in function.args.args]
        held = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        given = {*names[: len(calls[0][1].args) + 1], *(word.arg for word in calls[0][1].keywords)}
        return [place(file, value.lineno) for name, value in held.items() if name in words and name not in given]

    def _of_path(self, root: nn.Module, path: str) -> tuple[Place, ...]:
        if not path:
            return self._calls_of(type(root)) or self._in_variable(root, "")
        parent_path, _, name = path.rpartition(".")
        parent = root.get_submodule(parent_path)
        if isinstance(parent, _CONTAINERS) and type(parent).__module__.startswith("torch"):
            return self._in_container(root, parent_path, name)
        return self.of_attribute(parent, name)

    def _in_container(self, root: nn.Module, path: str, name: str) -> tuple[Place, ...]:
        """The line of one entry of a container, if the source lists them; else that of the container."""
        holder_path, _, attribute = path.rpartition(".")
        if not path:
            return self._in_variable(root, name)
        holder = root.get_submodule(holder_path)
        if type(holder).__module__.startswith("torch"):
            return self._of_path(root, path)
        found = _setting(type(holder), attribute)
        if found is None:
            return ()
        entry = _entry(found[1].value, name)
        rest = self.of_attribute(holder, attribute)
        return tuple(dict.fromkeys([*([place(found[0], entry.lineno)] if entry is not None else []), *rest]))

    def _in_variable(self, root: nn.Module, name: str) -> tuple[Place, ...]:
        """The same for a container that is the model itself, and a variable of a running function."""
        for spot in self._stack:
            for node in own_nodes(spot.scope) if spot.is_user and spot.scope is not None else ():
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if isinstance(target, ast.Name) and spot.names.get(target.id) is root and isinstance(node, ast.Assign):
                    entry = _entry(node.value, name) if name else None
                    return (place(spot.file, (entry or node).lineno),)
        return ()

    def _calls_of(self, kind: type) -> tuple[Place, ...]:
        """The line that makes the only instance of a class, if the source of the running code has one such line."""
        calls = self._call_nodes(kind)
        return (place(calls[0][0], calls[0][1].lineno),) if len(calls) == 1 else ()

    def _call_nodes(self, kind: type) -> list[tuple[str, ast.Call]]:
        """The calls that make instances of a class of the user's, with their files."""
        if class_source(kind) is None:
            return []
        files = {spot.file for spot in self._stack if spot.is_user} | {_file_of(kind)}
        return [
            (file, node)
            for file in files
            for node in ast.walk(parsed(file) or ast.Module([], []))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == kind.__name__
        ]


def own_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a module, without those of modules inside."""
    return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]


def _attributes(value: object) -> list[object]:
    """The attributes of an object of the user's class, such as a trainer that holds a model."""
    return list(vars(value).values()) if class_source(type(value)) is not None and hasattr(value, "__dict__") else []


def _file_of(kind: type) -> str:
    """The file of a class, from its methods: the module of a script that has ended is gone."""
    methods = (inspect.unwrap(each) for each in vars(kind).values() if inspect.isfunction(each))
    return next((each.__code__.co_filename for each in methods), "")


def class_source(kind: type) -> tuple[str, ast.ClassDef] | None:
    """The file and the definition of a class of the user's."""
    file = _file_of(kind)
    if not file or not is_users(file):
        return None
    held = [each for each in ast.walk(parsed(file) or ast.Module([], [])) if isinstance(each, ast.ClassDef)]
    named = [each for each in held if each.name == kind.__name__]
    return (file, named[0]) if len(named) == 1 else None


def method_of(kind: type, name: str) -> tuple[str, ast.FunctionDef] | None:
    """The file and the definition of a method, in the class or in one that it inherits from."""
    for each in kind.__mro__:
        source = class_source(each) if name in vars(each) else None
        if source is not None:
            methods = [node for node in source[1].body if isinstance(node, ast.FunctionDef) and node.name == name]
            return (source[0], methods[0]) if methods else None
    return None


def _setting(kind: type, name: str) -> tuple[str, Any, ast.FunctionDef] | None:
    """The assignment `self.name = ...` in a class of the user's, or the call that registers a buffer or parameter."""
    for each in kind.__mro__:
        source = class_source(each)
        if source is None:
            continue
        file, held = source
        for function in (node for node in held.body if isinstance(node, ast.FunctionDef)):
            for node in own_nodes(function):
                if _sets(node, name):
                    return file, _Set(node.lineno, _value_set(node, name)), function  # type: ignore[attr-defined]
    return None


class _Set:
    """A line that sets an attribute, and the expression that it is set to."""

    def __init__(self, lineno: int, value: ast.expr) -> None:
        self.lineno, self.value = lineno, value


def _sets(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [each for target in targets for each in ([*target.elts] if isinstance(target, ast.Tuple) else [target])]
        return any(isinstance(each, ast.Attribute) and ast.unparse(each) == f"self.{name}" for each in flat)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        named = isinstance(node.args[0], ast.Constant) and node.args[0].value == name
        return named and node.func.attr in ("register_buffer", "register_parameter", "add_module", "register_module")
    return False


def _value_set(node: Any, name: str) -> ast.expr:
    if isinstance(node, ast.Call):
        return node.args[-1]
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        names = [ast.unparse(each) for each in target.elts]
        return node.value.elts[names.index(f"self.{name}")]
    return node.value


def _entry(value: ast.expr | None, name: str) -> ast.expr | None:
    """The expression of the entry called `name` of `nn.Sequential(...)` or `nn.ModuleList([...])`."""
    if not isinstance(value, ast.Call) or not name.isdigit():
        return None
    args = value.args
    if len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
        args = args[0].elts
    plain = not any(isinstance(each, ast.Starred | ast.GeneratorExp | ast.ListComp) for each in args)
    return args[int(name)] if plain and int(name) < len(args) else None


def _expanded(words: set[str], function: ast.FunctionDef, line: int) -> tuple[set[str], list[int]]:
    """The names that an expression is made of, through variables of the function; and the lines that assign those."""
    lines: list[int] = []
    assigned = [each for each in own_nodes(function) if isinstance(each, ast.Assign) and each.lineno < line]
    for each in sorted(assigned, key=lambda each: -each.lineno):
        if any(isinstance(target, ast.Name) and target.id in words for target in each.targets):
            words = words | _words(each.value)
            lines.append(each.lineno)
    return words, lines


def lines_that_set(kind: type, name: str) -> tuple[Place, ...]:
    """All lines of a class of the user's that set an attribute, those outside of `__init__` first."""
    source = class_source(kind)
    if source is None:
        return ()
    functions = [each for each in source[1].body if isinstance(each, ast.FunctionDef)]
    functions.sort(key=lambda each: each.name == "__init__")
    nodes = [node for each in functions for node in own_nodes(each) if _sets(node, name) or _grows(node, name)]
    return tuple(place(source[0], node.lineno) for node in nodes)  # type: ignore[attr-defined]


def _grows(node: ast.AST, name: str) -> bool:
    """Is this a call such as `self.name.append(...)`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in ("append", "extend", "insert") and ast.unparse(node.func.value) == f"self.{name}"


def _parameters(function: ast.FunctionDef) -> set[str]:
    return {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self"}


def _words(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
