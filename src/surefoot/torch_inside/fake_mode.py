"""Fake mode: torch's fake tensors at a third of their cost, if an operator was seen before with such operands.

torch caches results by operand layout too. Looking up its cache and making the result takes most of the time of a
plan. Here both take fewer steps. Unusual operands (sparse, quantised, conjugated, subclasses, not fake) are left to
torch. So is everything if the cache of this torch has other methods than those that are known here: the plan is the
same, and slower.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    _DISPATCH_HANDLE_DIRECTLY,
    _DISPATCH_META_HANDLERS,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
    _DispatchCacheEntryOutputInfo,
    _DispatchCacheKey,
    unset_fake_temporarily,
)
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from surefoot.torch_inside.operators import private

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeMode",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedOperatorException",
    "unset_fake_temporarily",
]

aten = torch.ops.aten

_MAKE_SUBCLASS = torch.Tensor._make_subclass
_UNSAFE_VIEW = private("_unsafe_view").default
_VALUES = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


_MADE_BY = _parameters(FakeTensorMode._get_output_tensor_from_cache_entry)
_KNOWN = (
    _parameters(FakeTensorMode._cached_dispatch_impl) == ("self", "func", "types", "args", "kwargs")
    and _parameters(FakeTensorMode._cache_key) == ("self", "state", "func", "args", "kwargs")
    and _MADE_BY
    in (("self", "state", "entry", "key", "func", "args"), ("self", "state", "entry", "key", "args"))  # 2.15
    and {"inplace_idx", "metadata", "view_idx"} <= set(_DispatchCacheEntryOutputInfo.__dataclass_fields__)
)
"""Whether the cache of this torch works as the methods below expect."""


class FakeMode(FakeTensorMode):
    """A fake mode that `deepcopy` does not copy: copied layers must stay in the same mode."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.fake_tensor_converter = self._results = _Forgetful()
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        """What torch gives every fake tensor of a device."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the mode above, `FakeOperators`, already disables the compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Treats unsafe views as views. torch does not cache them, and they are half of a linear layer's operators."""
        if func in _DISPATCH_META_HANDLERS or func in _DISPATCH_HANDLE_DIRECTLY:
            return self.dispatch(func, types, args, kwargs or {})
        safe = aten.view.default if func is _UNSAFE_VIEW else func
        run = self._cached_dispatch_impl if _KNOWN else self.dispatch
        out = run(safe, types, args, kwargs or {})
        if self._results.made:
            self._results.forget()
        return out

    def _cache_key(self, *given: Any) -> Any:
        """The cache key of a call: equivalent to torch's own, but faster."""
        if not _KNOWN:
            return super()._cache_key(*given)
        _, func, args, kwargs = given
        try:
            operands = self._operands((args, kwargs))
        except _Unusual:
            return super()._cache_key(*given)
        settings = torch.get_default_dtype(), torch._C._get_default_device(), torch.is_inference_mode_enabled()
        return _DispatchCacheKey((FakeMode, func, *settings, get_proxy_mode() is not None, operands))

    def _operands(self, items: Any) -> tuple[Any, ...]:
        """A key that is equal for operands of the same layout."""
        found: list[Any] = []
        for item in items:
            kind = type(item)
            if kind is FakeTensor:
                found.append(self._layout(item))
            elif kind in _VALUES:
                found += (kind, item)  # 1 and 1.0 are equal, but their results differ
            elif kind is list or kind is tuple:
                found += (kind, self._operands(item))
            elif kind is dict:
                found += (kind, tuple(item), self._operands(item.values()))
            else:
                raise _Unusual
        return tuple(found)

    def _layout(self, tensor: FakeTensor) -> tuple[Any, ...]:
        if (
            tensor.fake_mode is not self
            or tensor.constant is not None
            or tensor.layout is not torch.strided
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.is_quantized
        ):
            raise _Unusual
        return (
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.storage_offset(),
            tensor.untyped_storage().nbytes(),
            tensor.requires_grad,
            tensor.is_inference(),
            tensor.fake_device,
        )

    def _get_output_tensor_from_cache_entry(self, *given: Any) -> Any:
        """A new tensor with the cached layout. A view shares the storage of its operand."""
        if not _KNOWN:
            return super()._get_output_tensor_from_cache_entry(*given)
        entry, args = given[1], given[-1]
        layout = entry.metadata
        if layout is None or entry.inplace_idx is not None or layout.is_conj or layout.is_neg:
            return super()._get_output_tensor_from_cache_entry(*given)
        made = torch.empty_strided(
            layout.shape, layout.stride, dtype=layout.dtype, device="meta", requires_grad=layout.requires_grad
        )
        if entry.view_idx is not None:
            storage = args[entry.view_idx].untyped_storage()
            made.set_(storage, layout.storage_offset, layout.shape, layout.stride)
        return self._fake(made, layout.device)

    def _fake(self, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
        """Makes a fake tensor like torch's constructor. Copies the attributes of the first one on the device."""
        if device not in self._attributes or not self._allow_unsafe_data_ptr_access:
            first = FakeTensor(self, tensor, device)
            self._attributes[device] = dict(vars(first))
            return first
        fake = _MAKE_SUBCLASS(
            FakeTensor, tensor, tensor.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
        vars(fake).update(self._attributes[device])
        return fake


class _Forgetful(FakeTensorConverter):
    """Makes the results of operators, and remembers them only until the operator is done.

    Until then, because an operator may return one tensor twice. torch's own keeps a weak reference for as long as the
    result lives. `Module.to` swaps the parameters of fake modules, and torch cannot swap a tensor that has one:
    https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/__init__.py (`swap_tensors`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []
        """What torch remembers the results of the operators that are running by."""

    def set_tensor_memo(self, t: torch.Tensor, v: FakeTensor) -> None:
        super().set_tensor_memo(t, v)
        self.made.append(self.meta_converter.describer.get_tensor_id(t))

    def forget(self) -> None:
        for each in self.made:
            self.meta_converter.tensor_memo.pop(each, None)
        self.made.clear()


class _Unusual(Exception):
    """An operand that is left to torch."""
