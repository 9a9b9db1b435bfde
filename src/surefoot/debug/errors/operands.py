"""What met in the call that failed: tensors and other values, with their names and where they came from."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from itertools import takewhile
from types import ModuleType
from typing import Any

import torch
from torch import nn

from surefoot.debug.errors.definitions import Definitions, own_tensors
from surefoot.debug.errors.evaluate import value_of
from surefoot.debug.errors.origins import Like, Origins
from surefoot.debug.errors.stack import Spot, Unknown
from surefoot.records.explanation import FailedModule, Met, Place
from surefoot.source.scopes import statement_of

_PLUMBING = ("_wrapped_call_impl", "_call_impl", "inner", "__torch_function__", "wrapper", "_fn", "decorate_context")
_DISPATCH = tuple(
    os.path.join("torch", each) for each in ("_ops.py", "_compile.py", "_dynamo", "_prims", "_refs", "_meta", "_decomp")
)
_MOST_ELEMENTS = 1 << 22
_NUMBERS = (
    "in_features", "out_features", "in_channels", "out_channels", "num_embeddings", "embedding_dim", "num_features",
    "input_size", "hidden_size", "embed_dim", "num_heads", "groups", "padding_idx", "num_channels", "num_groups",
)  # fmt: skip


class Operands:
    """Reads the call that failed: in torch's own frames, or in the expression of the user's line."""

    def __init__(self, stack: list[Spot], definitions: Definitions, origins: Origins) -> None:
        self.stack, self._definitions, self._origins = stack, definitions, origins
        users = [number for number, spot in enumerate(stack) if spot.is_user]
        self.last = stack[users[-1]] if users else None
        """The innermost frame of user code."""
        tail = takewhile(lambda each: not _dispatches(each), stack[(users[-1] + 1 if users else 0) :])
        self.tail = [each for each in tail if each.name not in _PLUMBING]
        """The frames of torch inside it."""
        self.module_spot = next((each for each in reversed(self.tail) if _is_forward(each)), None)

    def module(self) -> FailedModule | None:
        """The innermost running module."""
        held = self.module_spot.names["self"] if self.module_spot else None
        if held is None and self.last is not None and isinstance(self.last.names.get("self"), nn.Module):
            held = self.last.names["self"]
        if held is None:
            return None
        numbers = tuple((name, vars(held)[name]) for name in _NUMBERS if isinstance(vars(held).get(name), int))
        return FailedModule(
            self._definitions.path(held), type(held).__name__, self._definitions.of_module(held), numbers
        )

    def function(self) -> str:
        """The function that failed: torch's, or the operator in the user's line."""
        if self.module_spot is not None:
            return type(self.module_spot.names["self"]).__name__
        if self.tail:
            return self.tail[0].name
        node = self.last.node if self.last else None
        if isinstance(node, ast.Call):
            return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if isinstance(node, ast.BinOp | ast.AugAssign):
            return type(node.op).__name__
        return type(node).__name__ if node is not None else ""

    def met(self, like: Any = None) -> tuple[Met, ...]:
        """The values that met; `like` makes, of each, the test that its makers must pass."""
        found: dict[Any, Met] = {}
        for number, (role, value, node) in enumerate(self._values()):
            key = id(value) if role else number  # in `x @ x` a tensor meets itself
            if key not in found and (each := self._met(role, value, node, like)) is not None:
                found[key] = each
        return tuple(found.values())

    def _values(self) -> Iterator[tuple[str, Any, ast.expr | None]]:
        """Role, value and the user's expression of everything that met."""
        spot = self.module_spot or (self.tail[0] if self.tail else None)
        if spot is None:
            yield from self._in_line()
            return
        arguments = [(name, value) for name, value in spot.names.items() if name in _argument_names(spot)]
        for role, value in arguments:
            yield role, value, self._written(value, [each for _, each in arguments])
        held = spot.names.get("self")
        if isinstance(held, nn.Module):
            for name, value in own_tensors(held):
                yield name, value, None

    def _in_line(self) -> Iterator[tuple[str, Any, ast.expr | None]]:
        for node in self._operands():
            assert self.last is not None
            value = value_of(node, self.last)
            if value is Unknown:
                value = _Temporary(node)
            yield "", value, node

    def _written(self, value: Any, values: list[Any]) -> ast.expr | None:
        """The expression of the user's line that gave this value."""
        if self.last is None:
            return None
        nodes = self._operands()
        for node in nodes:
            if value_of(node, self.last) is value:
                return node
        if not self._is_direct():
            return self._of_same_shape(value, nodes)
        for name, held in self.last.names.items():
            if held is value and not isinstance(held, int | str | bool | None):
                return ast.Name(name, ast.Load())
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        unknown = [each for each in nodes if not _is_called(value_of(each, self.last))]
        if isinstance(self.last.node, ast.Call) and isinstance(self.last.node.func, ast.Attribute):
            unknown = [each for each in unknown if each is not self.last.node.func.value]
        is_place = isinstance(value, torch.Tensor) and len(unknown) >= len(tensors)
        number = next((n for n, each in enumerate(tensors) if each is value), 0)
        return unknown[number] if is_place else None

    def _operands(self) -> list[ast.expr]:
        """The expressions that the user's line combines; for an unpacking, what is unpacked."""
        if self.last is None:
            return []
        node = self.last.node
        if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store) and self.last.scope is not None:
            node = statement_of(self.last.scope, self.last.line)
        return _operands(node)

    def _of_same_shape(self, value: Any, nodes: list[ast.expr]) -> ast.expr | None:
        """The only tensor of the user's line that has the shape of one that torch's own layers passed on."""
        if self.last is None or not isinstance(value, torch.Tensor):
            return None
        held = [(node, value_of(node, self.last)) for node in nodes]
        alike = [node for node, each in held if isinstance(each, torch.Tensor) and each.shape == value.shape]
        return alike[0] if len(alike) == 1 else None

    def _is_direct(self) -> bool:
        """Does the user's line itself call the module or function that failed, not one that contains it?"""
        if self.module_spot is None or self.last is None or not isinstance(self.last.node, ast.Call):
            return True
        return value_of(self.last.node.func, self.last) is self.module_spot.names["self"]

    def _before(self, value: Any) -> tuple[str, tuple[Place, ...]]:
        """The layer before the one that failed in its container, whose output met here, and its lines."""
        held = self.module_spot.names["self"] if self.module_spot is not None else None
        containers = [each.names["self"] for each in self.tail if isinstance(each.names.get("self"), nn.Sequential)]
        layers = list(containers[-1]) if containers else []
        number = next((n for n, each in enumerate(layers) if each is held), 0)
        if not number or not isinstance(value, torch.Tensor):
            return "", ()
        made = next(
            (self._definitions.of_module(e) for e in layers[number - 1 :: -1] if any(True for _ in e.parameters())), ()
        )
        return f"output of {self._definitions.path(layers[number - 1])}", made

    def _met(self, role: str, value: Any, node: ast.expr | None, like: Any) -> Met | None:
        own = self._definitions.name_of(value) if isinstance(value, torch.Tensor) else ""
        name = own or (ast.unparse(node) if node is not None else "")
        made = self._definitions.of_value(value) if own else ()
        if not name and role == "input":
            name, made = self._before(value)
        if not made and node is not None and self.last is not None:
            test: Like | None = like(value) if like is not None and isinstance(value, torch.Tensor) else None
            made = self._origins.of(node, self.last, test, is_none=value is None or isinstance(value, _Temporary))
        if isinstance(value, torch.Tensor):
            return Met(
                name or role,
                role,
                "tensor",
                tuple(value.shape),
                str(value.dtype).removeprefix("torch."),
                str(value.device),
                _strides(value),
                *_range(value),
                value.requires_grad,
                made,
            )
        if isinstance(value, list | tuple) and value and all(isinstance(each, torch.Tensor) for each in value):
            shapes = tuple(tuple(each.shape) for each in value)
            return Met(name or role, role, type(value).__name__, shapes=shapes, made=made)
        if isinstance(value, _Temporary):
            return Met(name, role, "unknown", made=made)
        if isinstance(value, nn.Module | type | ModuleType) or callable(value) or (not name and role == "self"):
            return None
        if node is None and not isinstance(value, torch.Tensor):
            return None
        text = _text(value, node, self.last) if node is not None and self.last is not None else ""
        return Met(name or role, role, type(value).__name__, made=made, value=text)


def _text(value: Any, node: ast.expr, spot: Spot) -> str:
    """A plain value as text, with the values of the names in its expression."""
    if not isinstance(value, int | float | str | bool) or not any(
        isinstance(each, ast.Name) for each in ast.walk(node)
    ):
        return ""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute) and each is not node]
    parts = [(ast.unparse(each), value_of(each, spot)) for each in names]
    told = ", ".join(f"{name} = {part!r}" for name, part in parts if isinstance(part, int | float))
    return f"{value!r}{f' ({told})' if told else ''}"


class _Temporary:
    """A value that is not known: to compute it again could do harm."""

    def __init__(self, node: ast.expr) -> None:
        self.node = node


def _is_called(value: Any) -> bool:
    return value is not Unknown and isinstance(value, nn.Module | type)


def _dispatches(spot: Spot) -> bool:
    """Is this a function mode of surefoot, or the inside of an operator that is written in Python?"""
    return spot.is_own or any(each in spot.file for each in _DISPATCH)


def _is_forward(spot: Spot) -> bool:
    return isinstance(spot.names.get("self"), nn.Module) and spot.name == "forward"


def _argument_names(spot: Spot) -> list[str]:
    if not isinstance(spot.scope, ast.FunctionDef):
        return []
    given = spot.scope.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *([given.vararg] if given.vararg else [])]
    return [each.arg for each in every]


def _operands(node: ast.AST | None) -> list[ast.expr]:
    """The expressions that an operator or a call takes."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Attribute(value=value):
            return [value]
        case ast.Assign(value=value):
            return [value]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Call(func=function, args=args, keywords=words):
            flat = [
                inner for each in args for inner in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])
            ]
            receiver = [function.value] if isinstance(function, ast.Attribute) else []
            return [*receiver, *flat, *(each.value for each in words)]
    return []


def _strides(value: torch.Tensor) -> tuple[int, ...] | None:
    return tuple(value.stride()) if value.layout == torch.strided and not value.is_contiguous() else None


def _range(value: torch.Tensor) -> tuple[int | None, int | None]:
    """The lowest and highest value of a tensor of integers that has values and is not very large."""
    is_whole = not value.dtype.is_floating_point and not value.dtype.is_complex and value.dtype != torch.bool
    if not is_whole or type(value) is not torch.Tensor or value.device.type == "meta":  # subclasses may have no values
        return None, None
    if not 0 < value.numel() <= _MOST_ELEMENTS:
        return None, None
    if value.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch finds no minimum of these
        value = value.long()
    return int(value.min()), int(value.max())
