"""Finds why a backward meets a graph that is gone: which value connects the loss with it, and who freed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from surefoot.debug.errors.definitions import lines_that_set
from surefoot.debug.errors.origins import Origins
from surefoot.debug.errors.rerun_lines import lines_of, loss_expression, replayed
from surefoot.debug.errors.stack import Spot, Unknown, place
from surefoot.records.explanation import Freed, Place
from surefoot.source.parsing import parsed
from surefoot.source.scopes import own_nodes
from surefoot.trees import tensors_in

_MOST_NODES = 50_000


def freed(spot: Spot, origins: Origins) -> Freed | None:
    """What connects the loss of a failed backward with a graph that an earlier backward freed."""
    root = loss_expression(spot.node)
    if root is None:
        return None
    earlier, before = _backwards(spot), [node for node in _calls(spot) if node.lineno < spot.line]
    lines = lines_of(spot, root)
    if not lines and isinstance(root, ast.Name):
        return Freed(root.id, origins.of(root, spot), whole=True, earlier=earlier)
    again = replayed(spot)
    if again is not None and isinstance(again[1], torch.Tensor):
        nodes = list(_nodes(again[1].grad_fn))
        if any(_is_freed(node) for node in nodes):
            return _connected(spot, set(nodes), lines, earlier, origins)
    for call in reversed(before):
        other = loss_expression(call)
        if other is not None and ast.unparse(other) == ast.unparse(root):
            return Freed(ast.unparse(root), origins.of(root, spot), whole=True, earlier=(_line(spot, call),))
        shared = _shared(spot, lines, _lines_before(spot, call, other)) if other is not None else ""
        if shared:
            found = origins.of(ast.Name(shared, ast.Load()), spot)
            return Freed(shared, found, earlier=(_line(spot, call),))
    return None


def _line(spot: Spot, node: ast.AST) -> Place:
    return place(spot.file, node.lineno)  # type: ignore[attr-defined]


def _calls(spot: Spot) -> list[ast.Call]:
    """The calls of a backward in the function, in order."""
    held = own_nodes(spot.scope) if spot.scope is not None else ()
    return sorted((each for each in held if isinstance(each, ast.Call) and _is_backward(each)), key=lambda e: e.lineno)


def _backwards(spot: Spot) -> tuple[Place, ...]:
    """The lines that run a backward: of this function, or of its file if it has none."""
    calls: list[Any] = list(_calls(spot))
    if not calls:
        calls = [each for each in ast.walk(parsed(spot.file) or ast.Module([], [])) if _is_backward(each)]
    return tuple(dict.fromkeys(_line(spot, each) for each in calls)) if spot.is_user else ()


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _lines_before(spot: Spot, call: ast.Call, root: ast.expr) -> list[ast.stmt]:
    return lines_of(Spot(spot.file, call.lineno, spot.name, spot.module, {}, {}, call, spot.scope), root)


def _connected(
    spot: Spot, nodes: set[Any], lines: list[ast.stmt], earlier: tuple[Place, ...], origins: Origins
) -> Freed | None:
    """The variable or attribute that brings freed nodes into a graph that was made again."""
    read = {each.id for line in lines for each in ast.walk(line) if isinstance(each, ast.Name)}
    for name in sorted(read, key=lambda name: (name not in _read_first(lines), name)):
        value = spot.find(name)
        if value is not Unknown and not isinstance(value, nn.Module) and _brings(value, nodes):
            carried = any(_stores(line, name) for line in _around(spot))
            return Freed(name, origins.of(ast.Name(name, ast.Load()), spot), carried, earlier=earlier)
    for name in sorted(read):
        for path, held in _holders(spot.find(name)):
            for attribute, value in getattr(held, "__dict__", {}).items():
                if not attribute.startswith("_") and _brings(value, nodes):
                    made = lines_that_set(type(held), attribute)
                    return Freed(".".join(filter(None, (name, path, attribute))), made, True, earlier=earlier)
    return None


def _read_first(lines: list[ast.stmt]) -> set[str]:
    """The names that these lines read before they assign them: what comes from outside or from an earlier iteration."""
    found: set[str] = set()
    stored: set[str] = set()
    for line in lines:
        names = [each for each in ast.walk(line) if isinstance(each, ast.Name)]
        read = {each.id for each in names if isinstance(each.ctx, ast.Load) or isinstance(line, ast.AugAssign)}
        found |= read - stored
        stored |= {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return found


def _holders(value: Any) -> list[tuple[str, Any]]:
    """The objects whose attributes may hold a tensor from an earlier iteration: modules inside, or the object."""
    if isinstance(value, nn.Module):
        return list(value.named_modules())
    return [] if isinstance(value, torch.Tensor | type | ModuleType) else [("", value)]


def _around(spot: Spot) -> list[ast.stmt]:
    """The bodies of the loops around the line."""
    held = [each for each in own_nodes(spot.scope) if isinstance(each, ast.For | ast.While)] if spot.scope else []
    return [line for each in held if each.lineno <= spot.line <= (each.end_lineno or 0) for line in each.body]


def _stores(line: ast.stmt, name: str) -> bool:
    stored = (each for each in ast.walk(line) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return any(each.id == name for each in stored)


def _brings(value: Any, nodes: set[Any]) -> bool:
    """Does a value hold a tensor whose graph is a freed part of these nodes?"""
    for tensor in tensors_in(value):
        if tensor.grad_fn is not None and tensor.grad_fn in nodes and any(map(_is_freed, _nodes(tensor.grad_fn))):
            return True
    return False


def _shared(spot: Spot, lines: list[ast.stmt], others: list[ast.stmt]) -> str:
    """The variable with a graph that two losses were made from; the one that was assigned last."""
    names = [
        [each.id for line in some for each in ast.walk(line) if isinstance(each, ast.Name)] for some in (lines, others)
    ]
    both = [name for name in names[0] if name in names[1]]
    held = [name for name in both if any(each.grad_fn is not None for each in _tensors(spot.find(name)))]
    return max(held, key=lambda name: _assigned_at(spot, name), default="")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return iter(()) if value is Unknown or isinstance(value, nn.Module) else tensors_in(value)


def _assigned_at(spot: Spot, name: str) -> int:
    held = own_nodes(spot.scope) if spot.scope is not None else ()
    lines = [e.lineno for e in held if isinstance(e, ast.Name) and e.id == name and isinstance(e.ctx, ast.Store)]
    return max((line for line in lines if line < spot.line), default=0)


def _nodes(root: Any) -> Iterator[Any]:
    waiting, seen = [root] if root is not None else [], {root}
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        yield node
        for above, _ in node.next_functions:
            if above is not None and above not in seen:
                seen.add(above)
                waiting.append(above)


def _is_freed(node: Any) -> bool:
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                if "freed" in str(error):
                    return True
            except Exception:  # values of other kinds, which nothing is asked about
                continue
    return False
