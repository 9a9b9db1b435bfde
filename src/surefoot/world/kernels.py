"""Measures the memory that an operator really allocates, since torch's fake version does not report it.

A fake operator gives the shapes of its results. It does not report the kernel's temporary memory, and the size of some
results is wrong. So each distinct call (operator, shapes, strides, dtypes, other arguments) is run once for real, on
made-up data. Its allocations are read from torch's legacy profiler, which needs no compiler and prints nothing. Calls
that cannot differ are not run: views, elementwise work in one dtype, the optimizers' list operators. Random operators
and calls above `limit_bytes` are not run either; the latter are counted.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.torch_inside.modes import without_modes
from surefoot.torch_inside.profiler import allocations, is_profiling
from surefoot.torch_inside.sparse import LAYOUTS, is_sparse, parts_of
from surefoot.trees import map_tensors, tensors_in

LIMIT_BYTES = 64 << 20
_UNKNOWABLE = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
SELECTIONS = {torch.ops.aten.index.Tensor, torch.ops.aten.masked_select.default, torch.ops.aten.nonzero.default}
MASKS = (torch.bool, torch.uint8)
"""The dtypes of tensors that select elements, where they are used as an index."""
_LISTS = ("_foreach_", "_fused_", "_amp_")


@dataclass(frozen=True)
class Result:
    """A tensor that an operator made: its layout, and the bytes of its storage."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    storage_bytes: int


@dataclass(frozen=True)
class Kernel:
    """One distinct call: its results, with None for operands that it returns, and its temporary bytes."""

    results: tuple[Result | None, ...]
    workspace_bytes: int
    kept: tuple[torch.Tensor, ...] = ()
    """Storages that remain after the call: a library's workspace."""


class AnyKernels(Protocol):
    """Knows what calls allocate: by running them, like `Kernels`, or by rules."""

    too_large: set[Any]
    unknown: set[str]
    sparse: dict[Any, Kernel]

    def measured(self, func: Any, args: Any, kwargs: Any) -> Kernel | None: ...


class Kernels:
    """Runs each distinct call once and remembers its allocations. Nothing is known of calls made while not `wanted`."""

    def __init__(
        self,
        *,
        limit_bytes: int = LIMIT_BYTES,
        density: float | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.limit_bytes, self.wanted = limit_bytes, wanted
        self.share = 1.0 if density is None else density
        """The share of elements that a mask chooses, if it is not known."""
        self.too_large: set[Any] = set()
        """The distinct calls that were not tried because of their size; who clears it counts anew."""
        self.unknown: set[str] = set()
        """Operators that were seen and that nothing is known of: none, where they can be run."""
        self.sparse: dict[Any, Kernel] = {}
        """Calls on sparse tensors, which were run where their results were made."""
        self._known: dict[Any, Kernel | None] = {}
        self._large: set[Any] = set()

    def measured(self, func: Any, args: Any, kwargs: Any) -> Kernel | None:
        """The kernel of a call. None if the fake version is right."""
        if func.namespace in ("c10d", "_c10d_functional"):
            return _gloo(func.overloadpacket.__name__, args)
        if not self.wanted():
            return None
        tensors = list(tensors_in([args, kwargs]))
        if self.sparse and is_sparse(func, tensors, kwargs):
            return self.sparse.get(called(func, args, kwargs))
        if not (_selects(func, tensors) or _can_differ(func)):
            return None
        if not all(tensor.layout == torch.strided for tensor in tensors):
            return None
        if not tensors or (torch.Tag.pointwise in func.tags and len({t.dtype for t in tensors if t.dim()}) < 2):
            return None
        key = *called(func, args, kwargs), *(_chosen(each) for each in tensors if func in SELECTIONS)
        if key not in self._known:
            if sum(map(reach, tensors)) > self.limit_bytes or any(t.device.type != "cpu" for t in tensors):
                self._large.add(key)
            self._known[key] = None if key in self._large else self._measure(func, args, kwargs)
        if key in self._large:
            self.too_large.add(key)
        return self._known[key]

    def _measure(self, func: Any, args: Any, kwargs: Any) -> Kernel | None:
        if is_profiling():
            return None  # the loop is being profiled, and a second profiler would stop the first
        with for_real():  # gradients as in the loop: LSTM depends on it
            values = self._choosing if func in SELECTIONS else made_up
            made_up_args, made_up_kwargs = map_tensors(values, (args, kwargs))
            results: list[Any] = []
            try:
                peak = allocated_peak(lambda: results.append(func(*made_up_args, **made_up_kwargs)))
            except RuntimeError:  # the made-up values do not suit this operator
                return None
            if not all(tensor.layout == torch.strided for tensor in tensors_in(results)):
                return None  # a sparse result has no storage of its own
            return _described(_asked_for(func, args, results[0]), made_up_args, made_up_kwargs, peak)

    def _choosing(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor like one that selects or is selected from."""
        if tensor.dtype not in MASKS:
            return made_up(tensor)
        if not isinstance(tensor, FakeTensor):
            return tensor.clone()
        count = max(1, round(self.share * tensor.numel()))
        return (torch.arange(tensor.numel()) < count).view(tensor.shape).to(tensor.dtype)


@contextmanager
def for_real() -> Iterator[None]:
    """A context in which operators run for real, outside of all modes."""
    with without_modes(), torch.autocast("cpu", enabled=False):
        yield


def _gloo(name: str, args: Any) -> Kernel | None:
    """The memory that gloo takes from torch: a copy of the result for a gather, of the operand for a reduction.

    A reduce-scatter is assumed to average, as in FSDP: the divisor is stored in two formats.
    """
    if name in ("_allgather_base_", "all_gather_into_tensor"):
        ranks = 1 if name == "_allgather_base_" else args[1]
        return Kernel((), ranks * args[0].nbytes)
    if name in ("_reduce_scatter_base_", "reduce_scatter_tensor"):
        given = args[1 if name == "_reduce_scatter_base_" else 0]
        return Kernel((), given.nbytes + 8 + given.itemsize)
    return None


def allocated_peak(run: Callable[[], object]) -> int:
    """The peak of live bytes that `run` allocated on this thread."""
    collecting = gc.isenabled()
    gc.disable()  # memory that the collector frees was not allocated here
    try:
        return max(itertools.accumulate(allocations(run)), default=0)
    finally:
        if collecting:
            gc.enable()


def _selects(func: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether an operator selects elements by masks."""
    return func in SELECTIONS and any(each.dtype in MASKS for each in tensors)


def _chosen(mask: torch.Tensor) -> int:
    """How many elements a mask chooses; 0 if it is not known."""
    if mask.dtype not in MASKS or isinstance(mask, FakeTensor):
        return 0
    with for_real():
        return int(mask.count_nonzero())


@functools.cache
def _can_differ(func: Any) -> bool:
    name = func.overloadpacket.__name__
    of_a_library = func.namespace in sys.modules  # bitsandbytes, torchvision and others call it by their own name
    return (
        (func.namespace == "aten" or of_a_library)
        and not func.is_view
        and not name.startswith(_LISTS)
        and _UNKNOWABLE.isdisjoint(func.tags)
    )


def _asked_for(func: Any, args: Any, out: Any) -> Any:
    """The results without those that nobody asked for: a convolution makes the gradient of its weight all the same."""
    if func is not torch.ops.aten.convolution_backward.default:
        return out
    return tuple(each if asked else None for each, asked in zip(out, args[-1], strict=True))


def _described(out: Any, args: Any, kwargs: Any, peak: int) -> Kernel:
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors_in([args, kwargs])}
    new = 0
    results: list[Result | None] = []
    for tensor in tensors_in(out):
        storage = tensor.untyped_storage()
        if storage.data_ptr() in given:
            results.append(None)
        else:
            new += storage.nbytes()
            results.append(Result(tuple(tensor.shape), tensor.stride(), tensor.dtype, storage.nbytes()))
    return Kernel(tuple(results), max(0, peak - new))


def called(func: Any, args: Any, kwargs: Any) -> Any:
    """A hashable key of a call."""
    return func, signature(args), signature(kwargs)


def signature(tree: Any) -> Any:
    """A hashable key of everything that determines a call's allocations."""
    if isinstance(tree, torch.Tensor) and tree.layout in LAYOUTS:
        return tree.shape, tree.layout, *map(signature, parts_of(tree))
    if isinstance(tree, torch.Tensor):
        return tree.shape, tree.stride(), tree.dtype
    if isinstance(tree, torch.UntypedStorage):
        return tree.nbytes()  # its text lists every byte: minutes for each MB of weights that a recipe loads
    if isinstance(tree, list | tuple):
        return tuple(map(signature, tree))
    if isinstance(tree, dict):
        return tuple((name, signature(value)) for name, value in tree.items())
    return tree if tree is None or isinstance(tree, bool | int | torch.dtype) else str(tree)


def made_up(tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor of the same layout: small positive numbers, or zeros for integers."""
    fill = 0.01 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 0
    elements = reach(tensor) // tensor.element_size()
    return torch.full((elements,), fill, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


def reach(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first to its last element."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (1 + last) * tensor.element_size()


def corrected(out: Any, kernel: Kernel) -> Any:
    """The results of a fake operator. Those with a wrong dtype, storage size or stride are replaced."""
    results = iter(kernel.results)

    def right(tensor: torch.Tensor) -> torch.Tensor:
        result = next(results, None)
        if result is None or _is_right(tensor, result):
            return tensor
        elements = math.ceil(result.storage_bytes / result.dtype.itemsize)
        return torch.empty(elements, dtype=result.dtype).as_strided(result.shape, result.stride)

    return map_tensors(right, out)


def _is_right(tensor: torch.Tensor, result: Result) -> bool:
    """Whether a fake result is laid out like the real one. Strides of dimensions with one element mean nothing.

    The made-up values of a call may lead to another shape; then only the size can be compared.
    """
    if (tensor.dtype, tensor.untyped_storage().nbytes()) != (result.dtype, result.storage_bytes):
        return False
    layout = zip(tensor.shape, tensor.stride(), result.stride, strict=False)
    return tensor.shape != result.shape or all(size < 2 or one == other for size, one, other in layout)
