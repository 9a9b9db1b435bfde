"""The old names of tensors on a GPU, such as `torch.cuda.FloatTensor`: what they make, and `Tensor.type`."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from surefoot.world.card.placement import Placement

_DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    "Bool": torch.bool,
}  # fmt: skip


class _Typed(type):
    """The class of these names: each is called to make a tensor, and compared with `isinstance`."""

    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *given: Any, device: Any = None) -> torch.Tensor:
        """A tensor of sizes, or of values, on the card."""
        if not given:
            return torch.empty(0, dtype=cls.dtype, device="cuda")
        if isinstance(given[0], torch.Tensor):
            return given[0].to("cuda", cls.dtype)
        if isinstance(given[0], Integral):  # also one of NumPy
            return torch.empty([int(each) for each in given], dtype=cls.dtype, device="cuda")
        if isinstance(given[0], torch.Size):
            return torch.empty(given[0], dtype=cls.dtype, device="cuda")
        return torch.tensor(given[0], dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, tensor: object) -> bool:
        return isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.dtype == cls.dtype


TYPES = {f"{name}Tensor": _Typed(f"{name}Tensor", (), {"dtype": dtype}) for name, dtype in _DTYPES.items()}
"""By their names in `torch.cuda`."""
_MODULE = "torch.cuda."


def type_of(card: Placement, plain: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.type`: asks for the name, or moves a tensor to what a name says."""
    if not args and "dtype" not in kwargs:
        name = plain(tensor)
        return name.replace("torch.", _MODULE, 1) if card.holds(tensor) and _MODULE not in name else name
    asked = args[0] if args else kwargs["dtype"]
    if isinstance(asked, str) and asked.startswith(_MODULE):
        asked = TYPES.get(asked.removeprefix(_MODULE), asked)
    if isinstance(asked, _Typed):
        return tensor.to("cuda", asked.dtype)
    if isinstance(asked, torch.dtype):
        return tensor.to(asked)
    return plain(card.off(tensor) if card.holds(tensor) else tensor, *args, **kwargs)
