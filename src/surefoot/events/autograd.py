"""Reads the state of autograd: the numbers and saved values of graph nodes, versions of tensors, dispatch modes."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack


def next_node() -> int:
    """The sequence number that the next graph node of this thread will get."""
    return torch._C._autograd._get_sequence_nr()


def number(node: torch.autograd.graph.Node) -> int:
    """The sequence number of a graph node: nodes that forward made later have larger ones. Meaningless for leaves."""
    return node._sequence_nr()


def softmax_dim(node: torch.autograd.graph.Node) -> int:
    """The dimension that a softmax ran over. torch stores it unsigned, so the sign is restored here."""
    dim: int = node._saved_dim  # type: ignore[attr-defined]
    return (dim + (1 << 63)) % (1 << 64) - (1 << 63)


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


def sums_gradients(func: Any, args: Any) -> bool:
    """Is autograd adding up the gradients of a tensor that was used twice, and could it reuse the first one?

    Autograd adds in place when nothing else holds the first gradient, but never while a dispatch mode is on. Seen
    from a dispatch mode, a tensor that only the engine holds has four references, and its storage has two.
    """
    if func is not torch.ops.aten.add.Tensor or not in_graph_task() or torch.is_grad_enabled():
        return False  # with gradients enabled, this is a recomputed forward
    first, second = args[:2]
    if not isinstance(second, torch.Tensor) or first.shape != second.shape or not _is_dense(first):
        return False
    return first._use_count() == 4 and torch._C._storage_Use_Count(first.untyped_storage()._cdata) == 2


_SCATTERS = {
    torch.ops.aten.scatter_add.default,  # of gather
    torch.ops.aten.scatter.src,  # of max and min over a dimension, sort, topk
    torch.ops.aten.scatter.value,
    torch.ops.aten._unsafe_index_put.default,  # of indexing
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_add.default,  # of index_select, and of packed sequences
}


def scatters_gradients(func: Any) -> bool:
    """Is a node of the backward writing gradients to places in zeros that it made?

    It does so in place, but never while a dispatch mode is on, because of tensor subclasses (`areAnyTensorSubclassLike`
    in https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/FunctionsManual.cpp).
    """
    return func in _SCATTERS and in_graph_task() and not torch.is_grad_enabled()


def running_node() -> int:
    """The number of the graph node whose backward runs; -1 if none does."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else number(node)


def gives_one_twice() -> bool:
    """Has the running node two gradients for one tensor, as that of `x * x`? Autograd adds them when it has run."""
    node = torch._C._current_autograd_node()
    edges = [edge for edge in (() if node is None else node.next_functions) if edge[0] is not None]
    return len(set(edges)) < len(edges)


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def is_profiling() -> bool:
    """Is torch's profiler on?"""
    return torch.autograd._profiler_enabled()


def innermost_mode() -> Any:
    """The dispatch mode that was entered last; None outside of all modes."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return modes[-1] if modes else None


def only_function_mode() -> Any:
    """The function mode that is on, if it is the only one."""
    return torch._C._get_function_stack_at(0) if torch._C._len_torch_function_stack() == 1 else None


def without_function_mode() -> AbstractContextManager[Any]:
    """Inside, the function mode that was entered last is off."""
    return torch.overrides._pop_mode_temporarily()


def hide_function_mode(mode: Any) -> bool:
    """Takes a function mode off the stack, if it is the one that was entered last. Returns whether it was."""
    entered = torch._C._len_torch_function_stack()
    if not entered or torch._C._get_function_stack_at(entered - 1) is not mode:
        return False
    torch._C._pop_torch_function_stack()
    return True


def show_function_mode(mode: Any) -> None:
    """Puts a hidden function mode back on the stack."""
    torch._C._push_on_torch_function_stack(mode)


class aside:
    """Inside, computations are hidden from dispatch modes and build no graph.

    A class, because it is entered hundreds of times in a step: a generator takes twice as long.
    """

    __slots__ = ("_functions", "_grad", "_modes")

    def __enter__(self) -> None:
        self._modes: Any = _disable_current_modes() if _get_current_dispatch_mode_stack() else None
        if self._modes is not None:
            self._modes.__enter__()
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *raised: Any) -> None:
        torch._C._set_grad_enabled(self._grad)
        self._functions.__exit__(*raised)
        if self._modes is not None:
            self._modes.__exit__(*raised)
