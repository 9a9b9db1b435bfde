"""Walks the autograd graph behind a loss, once per backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from surefoot.torch_inside.autograd import number, saved

VIEWS = (
    "View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Expand",
    "Clone", "ToCopy", "Slice", "Select", "Alias", "Contiguous", "Index", "AsStrided", "Unbind", "Split",
)  # fmt: skip
SHARES = ("Sigmoid", "Softmax", "Hardsigmoid", "Reciprocal", "Clamp", "ClampMin", "ClampMax", "Hardtanh", "Exp")
"""Operations that produce numbers between 0 and 1 on purpose."""
_SUMS_OF_POWERS = ("Add", "Mul", "Div", "Sum", "Mean", "Pow", "Abs", "LinalgVectorNorm", "Norm", "Sqrt")
_FLAT = ("Round", "Floor", "Ceil", "Trunc", "Sign", "Sgn", "Heaviside")
_SQUARES = ("Pow", "MseLoss", "Abs", "L1Loss", "SmoothL1Loss", "HuberLoss")


@dataclass(slots=True)
class Graph:
    """The leaves of a loss's graph, the sequence numbers of its nodes, and patterns found among its nodes."""

    losses: list[torch.Tensor]
    roots: list[Any]
    leaves: set[torch.Tensor]
    numbers: set[int] = field(default_factory=set)
    softmaxes: list[Any] = field(default_factory=list)
    """Softmax nodes that go straight into a log-softmax."""
    sigmoids: list[Any] = field(default_factory=list)
    """Sigmoid and softmax nodes that go straight into a sigmoid."""
    ascends: bool = False
    flat: list[Any] = field(default_factory=list)
    """Nodes whose gradient is zero everywhere."""
    penalized: set[torch.Tensor] = field(default_factory=set)
    """Leaves that only a penalty on their own values reaches."""
    lowest: list[Any] = field(default_factory=list)
    """Nodes directly above a leaf. Every tensor made from parameters keeps one of them alive."""
    asked: bool = False
    """`torch.autograd.grad` was called: gradients are returned instead of added to `.grad`."""


def walk(losses: list[torch.Tensor]) -> Graph:
    """Walks the graph behind the given losses."""
    roots = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    found = Graph(losses, roots, {loss for loss in losses if loss.requires_grad and loss.grad_fn is None})
    waiting, seen, penalties = list(roots), set(roots), _penalties(roots)
    taught: set[torch.Tensor] = set()
    while waiting:
        node = waiting.pop()
        above: list[Any] = [each for each, _ in node.next_functions]
        leaves = [each.variable for each in above if hasattr(each, "variable")]
        if leaves:
            found.lowest.append(node)
        if node not in penalties:
            taught.update(leaves)
        if hasattr(node, "variable"):
            found.leaves.add(node.variable)
        else:
            found.numbers.add(number(node))
        if operation(node) in _FLAT:
            found.flat.append(node)
        if node.name() == "LogSoftmaxBackward0" and operation(above := made_by(node)) == "Softmax":
            found.softmaxes.append(above)
        if node.name() == "SigmoidBackward0" and operation(above := squeezed(made_by(node))) in ("Sigmoid", "Softmax"):
            found.sigmoids.append(above)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    if not any(node.name().startswith("CheckpointFunction") for node in seen):  # backward rebuilds its graph
        found.penalized = found.leaves - taught - set(losses)
    found.ascends = any(_ascends(root) for root in roots)
    return found


def _penalties(roots: list[Any]) -> set[Any]:
    """Nodes that the loss reaches through sums, products and powers only."""
    waiting, found = [root for root in roots if operation(root) in _SUMS_OF_POWERS], set()
    while waiting:
        node = waiting.pop()
        found.add(node)
        waiting += [n for n, _ in node.next_functions if operation(n) in _SUMS_OF_POWERS and n not in found]
    return found


def nodes(roots: list[Any]) -> Iterator[Any]:
    """Yields every node of a graph once."""
    waiting, seen = list(roots), set(roots)
    while waiting:
        node = waiting.pop()
        yield node
        above = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= above
        waiting += above


def saves(graph: Graph, tensor: torch.Tensor) -> bool:
    """Does a node of the graph save this tensor, or one that shares its memory, for the backward?"""
    memory = tensor.untyped_storage().data_ptr()
    for node in nodes(graph.roots):
        for name in ("self", "mat1", "mat2", "input", "indices", "other"):
            kept = saved(node, name)
            if isinstance(kept, torch.Tensor) and kept.untyped_storage().data_ptr() == memory:
                return True
    return False


def hangs_on(tensor: torch.Tensor, leaves: set[torch.Tensor]) -> bool:
    """Is the tensor one of the leaves, or was it computed from one?"""
    if tensor.grad_fn is None:
        return tensor in leaves
    return any(getattr(node, "variable", None) in leaves for node in nodes([tensor.grad_fn]))


def operation(node: Any) -> str:
    """The operation behind a node: `Softmax` for SoftmaxBackward0."""
    return "" if node is None else node.name().rstrip("0123456789").removesuffix("Backward")


def made_by(node: Any) -> Any:
    """The node that produced this node's first input, seen through changes of shape or format."""
    above = node.next_functions[0][0] if node.next_functions else None
    return through_views(above)


def through_views(node: Any) -> Any:
    """The first node that is not a view, starting from this one."""
    while node is not None and operation(node) in VIEWS and node.next_functions:
        node = node.next_functions[0][0]
    return node


def undropped(node: Any) -> Any:
    """The first node that is neither a view nor a dropout, starting from this one."""
    while operation(node := through_views(node)) in ("NativeDropout", "Dropout"):
        node = node.next_functions[0][0]
    return node


def squeezed(node: Any) -> Any:
    """The sigmoid or softmax behind clamps and added constants. Returns the node itself if there is none."""
    above = node
    while operation(above) in ("Clamp", "ClampMin", "ClampMax", "Add"):
        inputs = [each for each, _ in above.next_functions if each is not None]
        if len(inputs) != 1:
            return node
        above = undropped(inputs[0])
    return above if operation(above) in ("Sigmoid", "Softmax") else node


def made_of(node: Any) -> Any:
    """The node itself. For 1 / x, which torch records as two nodes, the reciprocal."""
    above = [each for each, _ in node.next_functions if each is not None] if operation(node) == "Mul" else []
    return above[0] if len(above) == 1 and operation(above[0]) == "Reciprocal" else node


def linearly_made(node: Any) -> Any:
    """The first node that is not a view, a dropout, or a product with a number or a parameter."""
    while (node := through_views(node)) is not None and operation(node) in ("Mul", "Div", "NativeDropout"):
        above = [each for each, _ in node.next_functions if each is not None and not hasattr(each, "variable")]
        if len(above) != 1:
            break
        node = above[0]
    return node


def ranks(given: torch.Tensor, *, classes: int) -> bool:
    """Is the input a difference of scores, or does it score candidates that differ from sample to sample?"""
    node = linearly_made(given.grad_fn)
    if not classes:
        return operation(node) == "Sub" and all(each is not None for each, _ in node.next_functions)
    return operation(node) in ("Cat", "Sum", "Bmm") or _has_shared_weights(node)


def _has_shared_weights(node: Any) -> bool:
    """Does a linear layer use one set of weights for all classes, or no trained weights at all?"""
    if operation(node) not in ("Addmm", "Mm", "Linear", "Convolution"):
        return False
    above = [through_views(each) for each, _ in node.next_functions]
    weights = [each.variable for each in above if hasattr(each, "variable")]
    return all(1 in each.shape for each in weights)


def scales_cosines(given: torch.Tensor) -> bool:
    """Did the input lie between -1 and 1 before it was scaled up or divided by a temperature?"""
    node = through_views(given.grad_fn)
    by = saved(node, "other") if operation(node) in ("Mul", "Div") else None
    if by is None or by.numel() != 1 or not by:
        return False
    scale = float(by.abs() if operation(node) == "Mul" else 1 / by.abs())
    return scale > 1 and float(given.detach().abs().max()) <= 1.001 * scale


def unscaled(root: Any) -> Any:
    """The loss before it was multiplied or divided by a number, as a gradient scaler does."""
    while operation(root) in ("Mul", "Div"):
        of, *by = (node for node, _ in root.next_functions)
        if any(each is not None for each in by) or of is None or hasattr(of, "variable"):
            break
        root = of
    return root


def _ascends(root: Any) -> bool:
    """Is this the negative of a mean or sum of squares or absolute values? It may be divided by a count."""
    root = unscaled(root)
    if operation(root) != "Neg":
        return False
    above = made_by(root)
    if operation(above) in ("Div", "Mul"):
        above = made_by(above)
    if operation(above) in ("Mean", "Sum"):
        above = made_by(above)
    return operation(above) in _SQUARES
