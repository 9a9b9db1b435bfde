"""Graph: what hangs on a loss, walked once per backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from surefoot.phases import number

VIEWS = (
    "View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "T", "Squeeze", "Unsqueeze", "Expand",
    "Clone", "ToCopy", "Slice", "Select", "Alias", "Contiguous", "Index", "AsStrided", "Unbind", "Split",
)  # fmt: skip
_SQUARES = ("Pow", "MseLoss", "Abs", "L1Loss", "SmoothL1Loss", "HuberLoss")


@dataclass(slots=True)
class Graph:
    """The leaves a loss's graph ends in, the numbers of its nodes, and what shows in its upper part."""

    roots: list[Any]
    leaves: set[torch.Tensor]
    numbers: set[int] = field(default_factory=set)
    softmaxes: list[Any] = field(default_factory=list)
    """Softmax nodes that go straight into a log-softmax."""
    ascends: bool = False


def walk(losses: list[torch.Tensor]) -> Graph:
    """The graph behind some losses."""
    roots = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    found = Graph(roots, {loss for loss in losses if loss.requires_grad and loss.grad_fn is None})
    waiting, seen = list(roots), set(roots)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found.leaves.add(node.variable)
        else:
            found.numbers.add(number(node))
        if node.name() == "LogSoftmaxBackward0" and operation(above := made_by(node)) == "Softmax":
            found.softmaxes.append(above)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    found.ascends = any(_ascends(root) for root in roots)
    return found


def operation(node: Any) -> str:
    """What made a node: `Softmax` for SoftmaxBackward0."""
    return "" if node is None else node.name().rstrip("0123456789").removesuffix("Backward")


def made_by(node: Any) -> Any:
    """The node whose result reaches this one's first input with nothing but a change of shape or format between."""
    above = node.next_functions[0][0] if node.next_functions else None
    return through_views(above)


def through_views(node: Any) -> Any:
    """The first node that is no view, from this one on upwards."""
    while node is not None and operation(node) in VIEWS and node.next_functions:
        node = node.next_functions[0][0]
    return node


def unscaled(root: Any) -> Any:
    """What a loss was before it was multiplied by a number, as a scaler does, or divided by one."""
    while operation(root) in ("Mul", "Div"):
        of, *by = (node for node, _ in root.next_functions)
        if any(each is not None for each in by) or of is None or hasattr(of, "variable"):
            break
        root = of
    return root


def _ascends(root: Any) -> bool:
    """Is this the negative of a mean or sum of squares or absolute values, also divided by a count?"""
    if operation(root) == "Div":
        root = made_by(root)
    if operation(root) != "Neg":
        return False
    above = made_by(root)
    if operation(above) in ("Div", "Mul"):
        above = made_by(above)
    if operation(above) in ("Mean", "Sum"):
        above = made_by(above)
    return operation(above) in _SQUARES
