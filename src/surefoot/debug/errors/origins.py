"""Follows a value back through the user's code to the lines that made it.

Nothing is recorded while the code runs. The source says which line assigned a name, which caller passed an argument and
what a function returned; the variables of the frames say which object it was.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from surefoot.debug.errors.definitions import Definitions, method_of
from surefoot.debug.errors.evaluate import value_of
from surefoot.debug.errors.stack import OWN_STEP, Spot, Unknown, place
from surefoot.records.explanation import Place
from surefoot.source.bindings import FUNCTIONS, Key, argument_of, arguments_of, holds, reaching
from surefoot.source.loop_body import name_of_call
from surefoot.source.owners import is_users
from surefoot.source.parsing import parsed
from surefoot.source.scopes import own_nodes, scope_at

MOST = 12
"""The most lines that are named for one value."""
_PASSING = (
    "view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "contiguous", "squeeze", "unsqueeze", "to",
    "float", "double", "half", "bfloat16", "long", "int", "cpu", "cuda", "detach", "clone", "expand", "repeat", "chunk",
    "split", "unbind", "flip", "narrow", "type", "requires_grad_", "numpy", "expand_as", "view_as", "reshape_as",
    "size",
)  # fmt: skip
"""Methods whose result is the same values in another shape, type or place."""
_ELEMENTWISE = (
    "relu", "gelu", "silu", "leaky_relu", "elu", "sigmoid", "tanh", "softmax", "log_softmax", "dropout", "normalize",
    "exp", "log", "sqrt", "abs", "clamp", "layer_norm", "flatten", "permute", "transpose", "squeeze", "unsqueeze",
    "reshape",
)  # fmt: skip
"""Functions whose result has the sizes of their first argument, or the same elements."""
_SIZED = ("arange", "zeros", "ones", "empty", "full", "rand", "randn", "eye", "len")
"""Functions that are given the sizes of their result, or a tensor whose size they return."""
_PROPERTIES = ("shape", "dtype", "device")
_WRAPPING = ("enumerate", "iter", "next", "reversed", "list", "tuple", "tqdm", "track", "trange", "cycle", "islice")


@dataclass(frozen=True)
class Like:
    """Which parts of an expression to follow: those that pass a test. Sums always; calls only if asked for."""

    test: Callable[[Any], bool]
    through_calls: bool = True


@dataclass(frozen=True, eq=False)
class _Inside(Spot):
    """A function that has returned: its source, without its variables except `self`, and the call that ran it."""

    call: ast.Call | None = None
    caller: Spot | None = None
    joins: bool = False
    """It joins samples of a data set into a batch."""


class Origins:
    """Answers where the values in a traceback came from."""

    def __init__(self, stack: list[Spot], definitions: Definitions) -> None:
        self._stack, self._definitions = stack, definitions
        self._like: Like | None = None
        self._is_none = False
        self._seen: set[tuple[Any, ...]] = set()

    def of(
        self, node: ast.AST | None, spot: Spot, like: Like | None = None, *, is_none: bool = False
    ) -> tuple[Place, ...]:
        """The lines that made the value of an expression, nearest first. `like` says which part of a sum to follow.

        Of a value that is None (`is_none`) it also follows functions that return it on one of several lines.
        """
        self._like, self._seen, self._is_none = like, set(), is_none
        found: dict[Place, None] = {}
        for each in self._follow(node, spot, ()) if node is not None else ():
            if is_users(each.file) and each.code:
                found.setdefault(each)
            if len(found) == MOST:
                break
        return tuple(found)

    def _follow(self, node: ast.AST, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        if (id(node), keys) in self._seen or len(self._seen) > 60:
            return
        self._seen.add((id(node), keys))
        match node:
            case ast.Name():
                yield from self._name(node.id, spot, keys)
            case ast.Subscript(value=value, slice=ast.Constant(value=key)):
                yield from self._follow(value, spot, (key, *keys))
            case ast.Subscript(value=value):
                yield from self._follow(value, spot, keys)
            case ast.Tuple() | ast.List() if (
                keys and isinstance(keys[0], int) and -len(node.elts) <= keys[0] < len(node.elts)
            ):
                yield place(spot.file, node.elts[keys[0]].lineno)
                yield from self._follow(node.elts[keys[0]], spot, keys[1:])
            case ast.Tuple() | ast.List() if not keys:
                yield from self._parts(node.elts, spot)
            case ast.Dict() if keys:
                for written, held in zip(node.keys, node.values, strict=True):
                    if isinstance(written, ast.Constant) and written.value == keys[0]:
                        yield place(spot.file, held.lineno)
                        yield from self._follow(held, spot, keys[1:])
            case ast.Attribute():
                yield from self._attribute(node, spot, keys)
            case ast.Call():
                yield from self._call(node, spot, keys)
            case ast.BinOp(left=left, right=right):
                yield from self._parts([left, right], spot)
            case ast.UnaryOp(operand=operand):
                yield from self._parts([operand], spot)
            case ast.Starred(value=value):
                yield from self._follow(value, spot, keys)
            case ast.GeneratorExp() | ast.ListComp():
                yield from self._follow(node.elt, spot, keys[1:])
                yield from self._follow(node.generators[0].iter, spot, keys)

    # ------------------------------------------------------------------------------------ names

    def _name(self, name: str, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        if spot.scope is None:
            return
        chosen = reaching(name, spot.scope, spot.line)
        for each in chosen:
            yield place(spot.file, each.line)
            if each.value is None:
                continue
            at = replace(spot, line=each.line)
            yield from self._layers(each.value, at)
            follow = self._item if each.item else self._follow
            found = list(follow(each.value, at, (*each.keys, *keys)))
            yield from found
            if found and self._one_way:
                return
        if not chosen:
            yield from self._given(name, spot, keys)

    def _given(self, name: str, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        """An argument, followed to the caller; or a variable of the module."""
        order = arguments_of(spot.scope)
        if isinstance(spot, _Inside) and spot.joins and order[:1] == [name]:
            yield from self._dataset(self.dataset(), keys)
        elif name in order:
            call, outside = self._caller(spot)
            if call is not None and outside is not None:
                argument, more = argument_of(call, name, order, spot.scope)
                if argument is not None:
                    yield place(outside.file, argument.lineno)
                    yield from self._layers(argument, outside)
                    yield from self._follow(argument, outside, (*more, *keys))
            elif outside is not None and order.index(name) == 1:  # the step of a recipe calls loss(model, batch)
                yield from self._sample(keys)
        elif not isinstance(spot.scope, ast.Module) and (tree := parsed(spot.file)) is not None:
            top = Spot(
                spot.file,
                len(linecache.getlines(spot.file)) + 1,
                "<module>",
                spot.module,
                spot.outside,
                spot.outside,
                None,
                tree,
            )
            if reaching(name, tree, top.line):
                yield from self._name(name, top, keys)

    def _caller(self, spot: Spot) -> tuple[ast.Call | None, Spot | None]:
        """The call that ran a function and the frame that made it; without a call if surefoot's step made it."""
        if isinstance(spot, _Inside):
            return spot.call, spot.caller
        numbers = [n for n, each in enumerate(self._stack) if each.names is spot.names]
        for outer in reversed(self._stack[: numbers[0]] if numbers else []):
            if outer.is_user and isinstance(outer.node, ast.Call):
                return outer.node, outer
            if outer.module == OWN_STEP:
                return None, outer
        return None, None

    # -------------------------------------------------------------------------- calls and attributes

    def _attribute(self, node: ast.Attribute, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        held = value_of(node.value, spot)
        if node.attr in _PROPERTIES:
            yield from self._follow(node.value, spot, ())
        elif isinstance(held, nn.Module):
            yield from self._definitions.of_attribute(held, node.attr)
        else:
            yield from self._follow(node.value, spot, keys)

    def _call(self, node: ast.Call, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        called, name = value_of(node.func, spot), name_of_call(node)
        if isinstance(called, nn.Module) and method_of(type(called), "forward") is not None:
            yield from self._returned(type(called).forward, called, node, spot, keys)
        elif self._is_about_shapes and node.args and _keeps_sizes(called, name):
            yield from self._follow(node.args[0], spot, ())
        elif _is_function_of_user(called):
            yield from self._returned(called, getattr(called, "__self__", None), node, spot, keys)
        elif name in _WRAPPING and node.args:
            yield from self._item(node, spot, keys)
        elif isinstance(node.func, ast.Attribute) and name in _PASSING and called is not torch.__dict__.get(name, 0):
            yield from self._follow(node.func.value, spot, keys)
        elif name in ("tensor", "as_tensor", "from_numpy") and node.args:
            if isinstance(node.args[0], ast.Name | ast.Subscript | ast.Attribute):
                yield from self._follow(node.args[0], spot, keys)
        elif name in ("cat", "stack", "concat", "concatenate", "hstack", "vstack") and node.args:
            yield from self._follow(node.args[0], spot, keys)
        elif name in _SIZED:
            for each in node.args:
                yield from self._follow(each, spot, ())
        elif self._like is not None and self._like.through_calls:
            parts = [*node.args, *(word.value for word in node.keywords)]
            yield from self._parts([*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *parts], spot)

    @property
    def _one_way(self) -> bool:
        """Is one way to where a value began enough? A dtype or a device comes from any part that has it."""
        return self._like is not None and self._like.through_calls

    @property
    def _is_about_shapes(self) -> bool:
        return self._like is None or not self._like.through_calls

    def _returned(
        self,
        function: Any,
        owner: Any,
        call: ast.Call | None,
        spot: Spot,
        keys: tuple[Key, ...],
        *,
        joins: bool = False,
    ) -> Iterator[Place]:
        """What a function of the user's returns or yields, if it does so on one line."""
        inside = _inside(function, owner, call, spot)
        scope = None if inside is None else inside.scope
        if inside is None or not isinstance(scope, FUNCTIONS):
            return
        ends = [each for each in own_nodes(scope) if isinstance(each, ast.Return | ast.Yield)]
        values = [each.value for each in ends if each.value is not None]
        if isinstance(scope, ast.Lambda):
            values = [scope.body]
        elif not ends:
            yield place(inside.file, scope.lineno)
        elif len(ends) > 1 and self._is_none:
            for each in (each for each in ends if _gives_none(each.value, keys)):
                yield place(inside.file, each.lineno)
                yield from (place(inside.file, line) for line in _conditions(each, scope))
        if len(values) == 1:
            at = replace(inside, line=values[0].lineno, joins=joins)
            yield place(at.file, values[0].lineno)
            yield from self._layers(values[0], at)
            yield from self._follow(values[0], at, keys)

    def _parts(self, parts: Iterable[ast.expr], spot: Spot) -> Iterator[Place]:
        """The parts of an expression that are like the value that is followed."""
        if self._like is None:
            return
        for each in parts:
            value = value_of(each, spot)
            if isinstance(value, torch.Tensor) and self._like.test(value):
                found = list(self._follow(each, spot, ()))
                yield from found
                if found and self._one_way:
                    return

    def _layers(self, value: ast.expr, spot: Spot) -> Iterator[Place]:
        """The lines that define the layers that an expression calls."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                layer = value_of(node.func, spot)
                if isinstance(layer, nn.Module) and next(layer.parameters(), None) is not None:
                    yield from self._definitions.of_module(layer)[:1]

    # --------------------------------------------------------------------------------------- data

    def _item(self, node: ast.expr, spot: Spot, keys: tuple[Key, ...]) -> Iterator[Place]:
        """What a loop takes from an expression: a batch of a loader, or what a generator of the user's yields."""
        if isinstance(node, ast.Call):
            name = name_of_call(node)
            if name == "enumerate" and node.args:
                yield from self._item(node.args[0], spot, keys[1:])
                return
            if name == "zip" and keys and isinstance(keys[0], int) and keys[0] < len(node.args):
                yield from self._item(node.args[keys[0]], spot, keys[1:])
                return
            if (name in _WRAPPING or name == "DataLoader") and node.args:
                yield from self._item(node.args[0], spot, keys)
                return
            if isinstance(kind := value_of(node.func, spot), type) and issubclass(kind, Dataset):
                yield from self._returned(getattr(kind, "__getitem__", None), None, None, spot, keys)
                return
        value = value_of(node, spot)
        if isinstance(value, DataLoader | Dataset):
            yield from self._follow(node, spot, ())
            if _is_function_of_user(collate := getattr(value, "collate_fn", None)):
                yield from self._returned(collate, None, None, spot, keys, joins=True)
            yield from self._dataset(getattr(value, "dataset", value), keys)
        else:
            yield from self._follow(node, spot, keys)

    def _sample(self, keys: tuple[Key, ...]) -> Iterator[Place]:
        """A batch of a recipe: what its data set returns."""
        recipes = (getattr(spot.names.get("self"), "recipe", None) for spot in self._stack if spot.is_own)
        collate = next((each.collate for each in recipes if each is not None), None)
        if _is_function_of_user(collate):
            yield from self._returned(collate, None, None, self._stack[0], keys, joins=True)
        if (dataset := self.dataset()) is not None:
            yield from self._dataset(dataset, keys)

    def of_samples(self, keys: tuple[Key, ...]) -> tuple[Place, ...]:
        """The lines of a data set that make one entry of its samples."""
        self._like, self._seen, self._is_none = None, set(), False
        return tuple(dict.fromkeys(each for each in self._sample(keys) if is_users(each.file)))[:MOST]

    def dataset(self) -> Any:
        """The data set that the running code reads: one that a frame, a loader or surefoot's loop holds."""
        waiting = [value for spot in reversed(self._stack) for value in spot.names.values()]
        seen: set[int] = set()
        for _ in range(5):
            for each in waiting:
                if isinstance(each, Dataset | DataLoader):
                    found = getattr(each, "dataset", each)
                    if not type(found).__module__.startswith("surefoot."):
                        return found
            inner = [each for each in waiting if type(each).__module__.split(".")[0] in ("surefoot", "torch")]
            seen |= {id(each) for each in inner}
            inside = [part for each in inner for part in _held(each)]
            waiting = [each for each in inside if id(each) not in seen]
        return None

    def _dataset(self, dataset: Any, keys: tuple[Key, ...]) -> Iterator[Place]:
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        if isinstance(dataset, TensorDataset) and keys and isinstance(keys[0], int) and keys[0] < len(dataset.tensors):
            yield from self._object(dataset.tensors[keys[0]])
        elif isinstance(dataset, list | tuple):
            yield from self._object(dataset, keys)
        elif (own := getattr(type(dataset), "__getitem__", None)) is not None:
            yield from self._returned(own, dataset, None, self._stack[0], keys)

    def _object(self, wanted: Any, keys: tuple[Key, ...] = ()) -> Iterator[Place]:
        """An object that a variable of a running function holds, followed from there."""
        for spot in self._stack:
            if not spot.is_user:
                continue
            for name, value in (*spot.names.items(), *spot.outside.items()):
                if value is wanted:
                    yield from self._name(name, spot, keys)
                    return


def _gives_none(value: ast.expr | None, keys: tuple[Key, ...]) -> bool:
    """Is this None, or the entry that is taken from it?"""
    if isinstance(value, ast.Tuple | ast.List) and keys and isinstance(keys[0], int) and keys[0] < len(value.elts):
        return _gives_none(value.elts[keys[0]], keys[1:])
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _conditions(node: ast.AST, scope: ast.AST) -> list[int]:
    """The lines of the `if` around a statement, innermost first."""
    held = [each for each in own_nodes(scope) if isinstance(each, ast.If) and holds(each, node.lineno)]  # type: ignore[attr-defined]
    return sorted((each.lineno for each in held), reverse=True)[:1]


def _keeps_sizes(called: Any, name: str) -> bool:
    """Is this a layer of torch, or a function of torch whose result has the sizes of its argument?"""
    if isinstance(called, nn.Module):
        return True
    of_tensor = isinstance(getattr(called, "__self__", None), torch.Tensor)
    return name in _ELEMENTWISE and called is not Unknown and not of_tensor and not _is_function_of_user(called)


def _is_function_of_user(called: Any) -> bool:
    return (inspect.isfunction(called) or inspect.ismethod(called)) and is_users(called.__code__.co_filename)


def _held(value: Any) -> list[Any]:
    """What an object of surefoot's or torch's holds, for the search of a data set."""
    if isinstance(value, torch.Tensor | nn.Module | type) or not hasattr(value, "__dict__"):
        return []
    return list(vars(value).values())


def _inside(function: Any, owner: Any, call: ast.Call | None, spot: Spot) -> _Inside | None:
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    if code is None or not is_users(code.co_filename) or (tree := parsed(code.co_filename)) is None:
        return None
    scope = scope_at(tree, code.co_firstlineno, code.co_name)
    if isinstance(scope, ast.Module):
        near = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS) and each.lineno >= code.co_firstlineno]
        named = [each for each in near if getattr(each, "name", "<lambda>") == code.co_name]
        if not named:
            return None
        scope = min(named, key=lambda each: each.lineno)
    names = {} if owner is None else {"self": owner}
    outside = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__globals__", {})
    end = getattr(scope, "end_lineno", 0) or 0
    return _Inside(code.co_filename, end, code.co_name, "", names, outside, None, scope, call, spot)
