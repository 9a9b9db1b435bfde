"""Reads the state of autograd: the numbers and saved values of graph nodes, versions of tensors, dispatch modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
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
    kept = []
    for name in ("_saved_self", "_saved_other"):
        with suppress(AttributeError, RuntimeError):
            kept.append(getattr(node, name))
    return [each for each in kept if isinstance(each, torch.Tensor)]


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


@contextmanager
def aside() -> Iterator[None]:
    """Inside, computations are hidden from dispatch modes and build no graph."""
    modes = _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext()
    with modes, torch._C.DisableTorchFunction(), torch.no_grad():
        yield
