"""Finds what in the user's code keeps tensors alive: lists and the lines that add to them, graphs that are kept."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch

from surefoot.debug.errors.stack import Spot, place
from surefoot.records.explanation import Place
from surefoot.records.out_of_memory import Keeper
from surefoot.source.owners import is_users
from surefoot.source.parsing import parsed
from surefoot.trees import tensors_in

_ADDING = ("append", "appendleft", "add", "extend", "insert", "update", "setdefault")
_LINES = 3
_DEPTH = 3


def keepers_of(stack: Iterable[Spot], is_kept: Callable[[torch.Tensor], bool]) -> tuple[Keeper, ...]:
    """The lists and dicts that hold several tensors of this kind, those that hold most first.

    They are looked for in the variables of the running functions and of their modules, and in the attributes of objects
    there.
    """
    found: dict[int, Keeper] = {}
    for spot in (each for each in stack if each.is_user):
        for name, value in (*spot.names.items(), *spot.outside.items()):
            for path, held in _containers(name, value, _DEPTH):
                if id(held) not in found and (count := sum(map(is_kept, _tensors(held)))) > 1:
                    found[id(held)] = Keeper(path, count, tuple(_adding(path, spot.file))[:_LINES])
    return tuple(sorted(found.values(), key=lambda each: -each.count))


@cache
def retains_graph(file: str, line: int) -> bool:
    """Whether the source calls a backward on this line that keeps its graph."""
    calls = (each for each in ast.walk(parsed(file) or ast.Module([], [])) if isinstance(each, ast.Call))
    words = (word for call in calls if call.lineno <= line <= (call.end_lineno or 0) for word in call.keywords)
    return any(
        word.arg in ("retain_graph", "create_graph")
        and not (isinstance(word.value, ast.Constant) and not word.value.value)
        for word in words
    )


def _containers(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | dict | deque | set):
        yield path, value
    elif isinstance(value, torch.nn.Module):
        for inside, module in value.named_modules():
            for name, held in vars(module).items():
                if not name.startswith("_") and isinstance(held, list | dict | deque | set):
                    yield ".".join(filter(None, (path, inside, name))), held
    elif depth and _is_object_of_user(value):
        for name, held in vars(value).items():
            yield from _containers(f"{path}.{name}", held, depth - 1)


def _is_object_of_user(value: Any) -> bool:
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return False
    methods = [each.__code__ for each in vars(type(value)).values() if hasattr(each, "__code__")]
    return any(is_users(each.co_filename) for each in methods)


def _tensors(held: Any) -> Iterator[torch.Tensor]:
    return tensors_in(list(held) if isinstance(held, deque | set) else held)


def _adding(path: str, file: str) -> Iterator[Place]:
    """The lines of a file that add to a variable or attribute of this name."""
    name = path.rpartition(".")[2]
    for node in ast.walk(parsed(file) or ast.Module([], [])):
        match node:
            case ast.Call(func=ast.Attribute(value=held, attr=method)) if method in _ADDING and _last(held) == name:
                yield place(file, node.lineno)
            case ast.Assign(targets=[ast.Subscript(value=held)]) | ast.AugAssign(target=held) if _last(held) == name:
                yield place(file, node.lineno)


def _last(node: ast.expr) -> str:
    """The last word of a name: `history` of `self.history[epoch]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
