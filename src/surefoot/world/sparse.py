"""Sparse tensors in a fake world: where their elements are is known, their values are not.

How many elements a sparse operator makes, and what its kernel allocates, depends on indices. So each call on sparse
tensors is run once for real, on the true indices and made-up values. Its results become fake again. A part that shares
memory with an operand still does: the values of a gradient are those that the backward made.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from surefoot.errors import WorldError
from surefoot.torch_inside.autograd import keeps_gradient
from surefoot.torch_inside.fake_mode import FakeTensor, FakeTensorMode, unset_fake_temporarily
from surefoot.torch_inside.modes import without_modes
from surefoot.torch_inside.operators import private, schema_of
from surefoot.torch_inside.sparse import LAYOUTS, become, fake_sparse, parts_of, sparse_of
from surefoot.trees import map_tensors, tensors_in
from surefoot.units import bytes_text
from surefoot.world.kernels import AnyKernels, Kernel, allocated_peak, called, for_real, made_up, reach
from surefoot.world.known_values import KnownValues

LIMIT_BYTES = 256 << 20
"""Operands of a sparse operator that are larger together are not made up."""

_COALESCE = private("_coalesce").default


class SparseCall:
    """One call on sparse tensors, on stand-ins for its fake operands."""

    def __init__(self, values: KnownValues, kernels: AnyKernels) -> None:
        self.values, self.kernels = values, kernels
        self.guessed = False
        """Whether indices had to be made up."""
        self.merged = False
        """Whether elements at equal indices were added, so that the size depends on indices."""
        self.grew = False
        """Whether a tensor that was written to has more elements than before."""
        self._stand_ins: dict[int, torch.Tensor] = {}
        self._given: dict[int, torch.Tensor] = {}
        """The tensors whose stand-ins are the results of operators that write to an operand."""
        self._memory: dict[int, tuple[torch.Tensor, int]] = {}
        """For the address of a stand-in's memory: the part of an operand, and how much further on that begins."""

    def run(self, mode: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> Any:
        """The fake result. What the kernel allocated is noted among the kernels."""
        if func is torch.ops.aten.clone.default and keeps_gradient():
            func = torch.ops.aten.detach.default  # cloned only because this mode holds it too
        before = called(func, args, kwargs)
        tensors = list(tensors_in([args, kwargs]))
        if sum(reach(part) for each in tensors for part in _parts(each)) > LIMIT_BYTES:
            raise WorldError(f"its operands take more than {bytes_text(LIMIT_BYTES)} together")
        results: list[Any] = []
        with unset_fake_temporarily(), for_real():
            real_args, real_kwargs = map_tensors(self._stand_in, (args, kwargs))
            peak = allocated_peak(lambda: results.append(func(*real_args, **real_kwargs)))
            real = results[0]
        new = {
            part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
            for each in tensors_in(real)
            for part in _parts(each)
            if part.untyped_storage().data_ptr() not in self._memory
        }
        written = {each.name for each in schema_of(func).arguments if each.alias_info and each.alias_info.is_write}
        out = map_tensors(lambda each: self._fake(mode, each, writes=bool(written)), real)
        kernel = Kernel((), max(0, peak - sum(new.values())))
        self.kernels.sparse[before] = self.kernels.sparse[called(func, args, kwargs)] = kernel
        self.merged = func is _COALESCE and _elements(real) < _elements(args[0])
        return out

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor in place of a fake one."""
        if id(tensor) not in self._stand_ins:
            made = self._sparse(tensor) if tensor.layout in LAYOUTS else self._strided(tensor)
            self._stand_ins[id(tensor)], self._given[id(made)] = made, tensor
        return self._stand_ins[id(tensor)]

    def _sparse(self, tensor: torch.Tensor) -> torch.Tensor:
        parts = parts_of(tensor)
        if not isinstance(tensor, FakeTensor):
            for part in parts:
                self._memory[part.untyped_storage().data_ptr()] = part, 0
            return tensor
        *indices, values = parts
        real = [self._strided(each) for each in indices]
        if any(isinstance(each, FakeTensor) and self.values.of(each) is None for each in indices):
            self.guessed = True
            for each, places in zip(real, _spread(tensor, indices), strict=True):
                each.copy_(places)
        return sparse_of(tensor, (*real, self._strided(values)))

    def _strided(self, tensor: torch.Tensor) -> torch.Tensor:
        value = self.values.of(tensor) if isinstance(tensor, FakeTensor) else tensor
        made = made_up(tensor) if value is None else value.detach()
        begins = int(tensor.storage_offset() - made.storage_offset())
        self._memory.setdefault(made.untyped_storage().data_ptr(), (tensor, begins))
        return made

    def _fake(self, mode: FakeTensorMode, real: Any, *, writes: bool) -> Any:
        """A result as a fake."""
        given = self._given.get(id(real))
        if real.layout not in LAYOUTS:
            return given if given is not None else self._part(mode, real)
        fake = fake_sparse(mode, real, tuple(self._part(mode, part) for part in parts_of(real)))
        if given is None or not writes:
            return fake
        if isinstance(given, FakeTensor):
            self.grew |= _elements(fake) > _elements(given)
            become(given, fake)
        return given

    def _part(self, mode: FakeTensorMode, real: torch.Tensor) -> torch.Tensor:
        """A strided result: a view of an operand's part, a few integers as they are, or a new fake."""
        storage = real.untyped_storage()
        source, begins = self._memory.get(storage.data_ptr(), (None, 0)) if storage.nbytes() else (None, 0)
        if source is not None and source.dtype is real.dtype:
            layout = real.shape, real.stride(), real.storage_offset() + begins
            if not isinstance(source, FakeTensor):
                with without_modes():
                    return source.as_strided(*layout)
            with mode:
                view = torch.as_strided(source, *layout)
            if self.values.of(source) is not None:
                self.values.know(view, real, self.values.origin([source]))
            return view
        if not real.dtype.is_floating_point and not real.dtype.is_complex:
            return real
        with mode:
            return torch.empty(storage.nbytes() // real.itemsize, dtype=real.dtype).as_strided(
                real.shape, real.stride(), real.storage_offset()
            )


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return parts_of(tensor) if tensor.layout in LAYOUTS else (tensor,)


def _spread(tensor: torch.Tensor, indices: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Indices of as many elements, all of them at different places as far as there are enough."""
    first, *second = indices
    if not second:
        count, sizes = first.shape[1], tensor.shape[: len(first)]
        return (torch.stack(torch.unravel_index(torch.arange(count) % max(1, math.prod(sizes)), sizes)),)
    count, columns = second[0].shape[-1], tensor.shape[-1 if "row" in str(tensor.layout) else -2]
    ends = torch.arange(first.shape[-1]) * count // max(1, first.shape[-1] - 1)
    return ends, torch.arange(count) % max(1, columns)


def _elements(tensor: torch.Tensor) -> int:
    return len(parts_of(tensor)[-1])
