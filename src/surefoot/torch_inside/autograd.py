"""Autograd: the numbers and saved values of graph nodes, writes to tensors, and what a running backward does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from surefoot.torch_inside.operators import private
from surefoot.torch_inside.storages import holders_of


def next_node() -> int:
    """The sequence number that the next graph node of this thread will get."""
    return torch._C._autograd._get_sequence_nr()


def number(node: torch.autograd.graph.Node) -> int:
    """The sequence number of a graph node: nodes that forward made later have larger ones. Meaningless for leaves."""
    return node._sequence_nr()


def softmax_dim(node: torch.autograd.graph.Node) -> int:
    """The dimension that a softmax ran over."""
    return signed(node._saved_dim)  # type: ignore[attr-defined]


def signed(stored: int) -> int:
    """A number that a node saved. torch hands out negative ones as unsigned."""
    return (stored + (1 << 63)) % (1 << 64) - (1 << 63)


def factors_of(node: torch.autograd.graph.Node) -> list[torch.Tensor]:
    """The tensors that a product saved for its backward; none after backward has freed them."""
    kept = (saved(node, name) for name in ("self", "other"))
    return [each for each in kept if isinstance(each, torch.Tensor)]


def saved(node: torch.autograd.graph.Node | None, name: str) -> Any:
    """What a node saved for its backward under a name; None if nothing, if it is freed, or was written since."""
    with suppress(AttributeError, RuntimeError):
        return getattr(node, f"_saved_{name}")
    return None


def writes(tensor: torch.Tensor) -> int:
    """How often a tensor was written in place; 0 for a tensor made in inference mode, which keeps no count."""
    return 0 if tensor.is_inference() else tensor._version


def in_graph_task() -> bool:
    """Is a backward running in this thread?"""
    return torch._C._current_graph_task_id() != -1


def sums_gradients(func: Any, args: Any, modes_above: int = 0) -> bool:
    """Is autograd adding up the gradients of a tensor that was used twice, and could it reuse the first one?

    Autograd adds in place when nothing else holds the first gradient, but never while a dispatch mode is on. Seen
    from a dispatch mode, a tensor that only the engine holds has four references, and its storage has two. Each mode
    above it holds the tensor once more.
    """
    if func is not torch.ops.aten.add.Tensor or not in_graph_task() or torch.is_grad_enabled():
        return False  # with gradients enabled, this is a recomputed forward
    first, second = args[:2]
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or not _is_dense(first):
        return False
    return first._use_count() == 4 + modes_above and holders_of(first.untyped_storage()) == 2


_SCATTERS = {
    torch.ops.aten.scatter_add.default,  # of gather
    torch.ops.aten.scatter.src,  # of max and min over a dimension, sort, topk
    torch.ops.aten.scatter.value,
    private("_unsafe_index_put").default,  # of indexing
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_add.default,  # of index_select, and of packed sequences
}


_COUNTING = ("ScatterReduceBackward", "IndexReduceBackward")
"""Nodes that count how many elements share a gradient. They scatter out of place: what they count from is live."""


def scatters_gradients(func: Any) -> bool:
    """Is a node of the backward writing gradients to places in zeros that it made?

    It does so in place, but never while a dispatch mode is on, because of tensor subclasses (`areAnyTensorSubclassLike`
    in https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/FunctionsManual.cpp).
    """
    if func not in _SCATTERS or not in_graph_task() or torch.is_grad_enabled():
        return False
    node = current_node()
    return node is None or not node.name().startswith(_COUNTING)


def current_node() -> torch.autograd.graph.Node | None:
    """The graph node whose backward runs in this thread."""
    return torch._C._current_autograd_node()


def keeps_gradient() -> bool:
    """Does the engine store a gradient in a parameter? A sparse one that nobody else holds it takes over as it is."""
    node = current_node() if in_graph_task() and not torch.is_grad_enabled() else None
    return node is not None and node.name().endswith("AccumulateGrad")


def running_node() -> int:
    """The number of the graph node whose backward runs; -1 if none does."""
    node = current_node()
    return -1 if node is None else number(node)


def gives_one_twice() -> bool:
    """Has the running node two gradients for one tensor, as that of `x * x`? Autograd adds them when it has run."""
    node = current_node()
    edges = [edge for edge in (() if node is None else node.next_functions) if edge[0] is not None]
    return len(set(edges)) < len(edges)


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
