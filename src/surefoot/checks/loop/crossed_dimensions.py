"""Finds views and products that confuse one dimension with another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from surefoot.checks.engine.autograd_graph import operation, through_views
from surefoot.checks.engine.observer import Observer
from surefoot.checks.engine.scene import Scene, tensors
from surefoot.checks.engine.types import Args, Function, Kwargs
from surefoot.checks.facts.models import Crossing, ModelFacts
from surefoot.events.callers import caller
from surefoot.torch_inside.autograd import softmax_dim

VIEWS = {"view", "reshape", "view_as", "reshape_as"}
_PRODUCTS = {"matmul", "__matmul__", "bmm"}
_GATHERINGS = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"}
_KEEPS_DIMENSIONS = {"Clone", "ToCopy", "NativeDropout", "Mul", "Div"}
"""Operations between a softmax and its product that keep dimensions in place."""

_COLOURS, _SMALLEST_SIDE = (2, 3, 4), 8
"""The sizes that distinguish an image from other arrays."""


class CrossedDimensions(Observer):
    """Collects the places where dimensions are mixed up."""

    functions = VIEWS | _PRODUCTS | _GATHERINGS | {"einsum"}
    reads = True

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.crossings: dict[str, Crossing] = {}

    def called(self, function: Function, args: Args, kwargs: Kwargs, out: object) -> None:
        """Checks a view or product after torch has returned it."""
        if not self.scene.close or not torch.is_grad_enabled() or not isinstance(out, torch.Tensor):
            return
        name = getattr(function, "__name__", "")
        if name in VIEWS:
            before, after = tuple(args[0].shape), tuple(out.shape)
            computed = out.is_floating_point() and (out.requires_grad or self.scene.phases.in_model())
            if crosses(before, after) if computed else takes_colours_for_rows(before, after):
                self._note("view", f"{size_text(before)} as {size_text(after)}")
        elif name in _PRODUCTS and len(args) == 2 and out.requires_grad:
            self._product(args[0])
        elif name in _GATHERINGS and out.requires_grad:
            self._gathered(list(tensors((args[1:], kwargs))))
        elif name == "einsum" and args and isinstance(args[0], str) and out.requires_grad:
            self._einsum(args[0], list(tensors(args[1:])))

    def _product(self, weights: Any) -> None:
        """A product sums over the last dimension of its first factor. Its softmax must run over that dimension."""
        dim = shared_out_over(weights)
        if dim is not None and min(weights.shape[-1], weights.shape[dim]) > 1:
            self._note("product", f"dimension {dim} of {size_text(weights.shape)}")

    def _einsum(self, equation: str, operands: list[torch.Tensor]) -> None:
        """If an einsum sums over dimensions of a softmax, the softmax dimension must be among them."""
        inputs, _, output = equation.replace(" ", "").partition("->")
        for labels, weights in zip(inputs.split(","), operands, strict=False):
            node = _straight_above(weights)
            if operation(node) != "Softmax" or len(labels) != weights.dim() or not output:
                continue
            dim = softmax_dim(node) % weights.dim()
            added = [place for place, label in enumerate(labels) if label not in output]
            if added and dim not in added:
                self._note("product", f"dimension {dim} of {size_text(weights.shape)}")

    def _gathered(self, given: list[torch.Tensor]) -> None:
        """Messages are summed group by group, but one softmax over all groups weighted them."""
        for message in given:
            node = _weights_of(message.grad_fn)
            if node is not None and softmax_dim(node) == 0:
                self._note("product", "all groups")

    def _note(self, kind: str, seen: str) -> None:
        where = caller() or self.scene.phases.module() or "the model"
        self.crossings.setdefault(f"{kind} {where}", Crossing(kind, where, seen))

    def facts(self) -> Iterator[ModelFacts]:
        yield ModelFacts(crossings=tuple(self.crossings.values()))


def shared_out_over(weights: Any) -> int | None:
    """The dimension of the softmax before a batched product, if it is not the last; otherwise None."""
    if not isinstance(weights, torch.Tensor) or weights.dim() < 3:
        return None
    node = _straight_above(weights)
    if operation(node) != "Softmax":
        return None
    dim = softmax_dim(node) % weights.dim()
    scores = node.next_functions[0][0]
    while operation(scores) in ("Mul", "Div", "Add", "MaskedFill", "Where", "ToCopy", "UnsafeView", "View", "Sub"):
        scores = next((each for each, _ in scores.next_functions if each is not None), None)
    return dim if operation(scores) == "Bmm" and dim != weights.dim() - 1 else None


def _weights_of(node: Any) -> Any:
    """The softmax among the factors of a product, seen through views; None if there is none."""
    waiting = [through_views(node)]
    while waiting:
        each = through_views(waiting.pop())
        if operation(each) == "Softmax":
            return each
        if operation(each) in ("Mul", "NativeDropout"):
            waiting += [above for above, _ in each.next_functions if above is not None]
    return None


def _straight_above(tensor: torch.Tensor) -> Any:
    node = tensor.grad_fn
    while node is not None and operation(node) in _KEEPS_DIMENSIONS:
        above = [each for each, _ in node.next_functions if each is not None]
        node = above[0] if len(above) == 1 else None
    return node


@lru_cache(maxsize=4096)
def crosses(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Does a view have the sizes of a transposed tensor? Only then can dimensions be told apart by position alone."""
    old, new = (tuple(size for size in shape if size != 1) for shape in (before, after))
    if old == new or len(old) < 2 or len(new) < 2 or max(len(old), len(new)) > 6 or math.prod(old) != math.prod(new):
        return False
    return any(_only_out_of_order(*pair) for pair in ((old, new), (new, old)))


def takes_colours_for_rows(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Is an image viewed as channels-first although its channels are last, or the other way round?"""
    if len(before) not in (3, 4) or len(before) != len(after) or before[:-3] != after[:-3]:
        return False
    old, new = before[-3:], after[-3:]
    for last, first in ((old, new), (new, old)):
        if last[2] in _COLOURS and (last[2], *last[:2]) == first and min(last[:2]) >= _SMALLEST_SIDE:
            return True
    return False


def _only_out_of_order(parts: tuple[int, ...], wholes: tuple[int, ...]) -> bool:
    """Can every whole be a product of parts, but only if the parts change their order?"""
    orders = list(_shared_out(parts, wholes))
    return bool(orders) and not any(list(order) == sorted(order) for order in orders)


def _shared_out(parts: tuple[int, ...], wholes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to assign each part to a whole so that the parts of each whole multiply to it."""
    if not parts:
        if all(whole == 1 for whole in wholes):
            yield ()
        return
    for place, whole in enumerate(wholes):
        if whole % parts[0] == 0:
            left = (*wholes[:place], whole // parts[0], *wholes[place + 1 :])
            yield from ((place, *rest) for rest in _shared_out(parts[1:], left))


def size_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
