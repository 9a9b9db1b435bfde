"""The values of expressions in a frame that has failed, as far as computing them again does no harm."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from surefoot.debug.errors.stack import Spot, Unknown

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_PLAIN = (len, int, float, max, min, sum, range, tuple, list, dict)
_PURE_MODULES = ("torch", "torch.functional", "torch.nn.functional")
_ACTING = ("backward", "register_hook", "share_memory", "save", "load", "seed", "manual_seed", "print", "input", "open")
_DATA = (torch.Tensor, nn.Module, Mapping, Sequence, int, float, str, torch.utils.data.Dataset)


def value_of(node: ast.AST | None, spot: Spot) -> Any:
    """The value of an expression, or `Unknown` if it would have to run code of the user, write or draw."""
    if node is None:
        return Unknown
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return _value(node, spot)
    except Exception:  # the expression that failed is among those that are tried
        return Unknown


def _value(node: ast.AST, spot: Spot) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            found = spot.find(node.id)
            return getattr(builtins, node.id, Unknown) if found is Unknown else found
        case ast.Attribute():
            return _attribute(_value(node.value, spot), node.attr)
        case ast.Subscript():
            held: Any = _known(node.value, spot)
            is_data = isinstance(held, _DATA)
            return held[_known(node.slice, spot)] if is_data else Unknown
        case ast.Slice():
            return slice(
                *(None if each is None else _known(each, spot) for each in (node.lower, node.upper, node.step))
            )
        case ast.Tuple() | ast.List():
            return type_of(node)(_known(each, spot) for each in node.elts)
        case ast.BinOp():
            return _OPERATORS[type(node.op)](_known(node.left, spot), _known(node.right, spot))
        case ast.UnaryOp():
            return _OPERATORS[type(node.op)](_known(node.operand, spot))
        case ast.Call():
            return _call(node, spot)
    return Unknown


def type_of(node: ast.Tuple | ast.List) -> Any:
    return tuple if isinstance(node, ast.Tuple) else list


def _known(node: ast.AST, spot: Spot) -> Any:
    found = _value(node, spot)
    if found is Unknown:
        raise LookupError(ast.unparse(node))
    return found


def _attribute(held: Any, name: str) -> Any:
    """An attribute, without running a property of the user's."""
    if isinstance(held, torch.Tensor | ModuleType | torch.Size) or held in (torch.Tensor,):
        return getattr(held, name)
    if isinstance(held, nn.Module) and not isinstance(getattr(type(held), name, None), property):
        return getattr(held, name)
    if name in getattr(held, "__dict__", {}):
        return vars(held)[name]
    method = inspect.getattr_static(type(held), name, None)
    return MethodType(method, held) if inspect.isfunction(method) else Unknown


def _call(node: ast.Call, spot: Spot) -> Any:
    called = _known(node.func, spot)
    if not _is_harmless(called):
        return Unknown
    args = [_known(each, spot) for each in node.args]
    return called(*args, **{each.arg: _known(each.value, spot) for each in node.keywords if each.arg})


def _is_harmless(called: Any) -> bool:
    """Is this a function or layer of torch that writes nothing, or a plain function?"""
    if isinstance(called, nn.Module):
        return type(called).__module__.startswith("torch.nn.") and not any(True for _ in called.buffers())
    if any(called is each for each in _PLAIN):
        return True
    name, owner = getattr(called, "__name__", "_"), getattr(called, "__self__", None)
    if name.endswith("_") or name in _ACTING:
        return False
    return isinstance(owner, torch.Tensor) or (getattr(called, "__module__", None) or "torch") in _PURE_MODULES
