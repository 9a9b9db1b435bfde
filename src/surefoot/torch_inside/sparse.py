"""Sparse: the parts of sparse tensors, which are indices and values, and fake sparse tensors that remember theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from surefoot.torch_inside.modes import without_modes

aten = torch.ops.aten
_PARTS = "_surefoot_parts"
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
LAYOUTS = {torch.sparse_coo, *_COMPRESSED}


def is_sparse(func: Any, tensors: Iterable[torch.Tensor], kwargs: Any) -> bool:
    """Whether a call takes or makes sparse tensors."""
    if any(each.layout in LAYOUTS for each in tensors):
        return True
    return kwargs.get("layout") in LAYOUTS or "to_sparse" in func.overloadpacket.__name__


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The strided parts of a sparse tensor: its indices, and its values last."""
    known: tuple[torch.Tensor, ...] | None = vars(tensor).get(_PARTS)
    if known is not None:
        return known
    with without_modes():
        if tensor.layout is torch.sparse_coo:
            return tensor._indices(), tensor._values()
        return *(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]), tensor.values()


def sparse_of(like: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A real sparse tensor of these parts, with the layout, the shape and the flags of another."""
    return _made(like.layout, tuple(like.shape), parts, coalesced=like.layout is torch.sparse_coo and _merged(like))


def fake_sparse(mode: Any, real: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A fake sparse tensor that is laid out like a real one and has these parts, of which some may be real."""
    if real.layout is torch.sparse_coo:
        with mode:
            fake = _made(real.layout, tuple(real.shape), parts, coalesced=_merged(real))
    else:
        fake = mode.from_tensor(real)  # torch's fake constructor of this layout forgets how many elements there are
    vars(fake)[_PARTS] = parts
    return fake


def become(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Gives a fake sparse tensor what another one holds, as an operator does that writes to it."""
    tensor.data = other
    vars(tensor)[_PARTS] = vars(other)[_PARTS]


def _merged(tensor: torch.Tensor) -> bool:
    with without_modes():
        return bool(aten.is_coalesced.default(tensor))


def _made(layout: Any, shape: tuple[int, ...], parts: tuple[torch.Tensor, ...], *, coalesced: bool) -> torch.Tensor:
    *indices, values = parts
    what: dict[str, Any] = {"dtype": values.dtype, "layout": layout, "device": "cpu", "pin_memory": False}
    if layout is not torch.sparse_coo:
        return aten._sparse_compressed_tensor_unsafe.default(*indices, values, list(shape), **what)
    where = indices[0]
    dims = len(where), values.dim() - 1
    made = aten._sparse_coo_tensor_with_dims_and_tensors.default(*dims, list(shape), where, values, **what)
    return aten._coalesced_.default(made, True) if coalesced else made
