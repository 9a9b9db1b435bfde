"""Fake results: those of operators that torch's own fake kernels refuse although the real ones run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from surefoot.torch_inside.operators import private

aten = torch.ops.aten


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offsets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The products of mixtures of experts. torch's fake kernel takes bfloat16 only, the real ones float32 and float16.

    Other dtypes, and strides that the real kernel refuses, are left to torch.
    """
    known = left.dtype is right.dtype and left.dtype in (torch.float32, torch.float16)
    if not known or not (_is_aligned(left) and _is_aligned(right)):
        return private("_grouped_mm").default(left, right, offsets, bias, out_dtype)
    if left.dim() == right.dim() == 2:
        groups = () if offsets is None else (len(offsets),)
    else:
        groups = (len(left),) if left.dim() == right.dim() else ()
    return left.new_empty((*groups, left.shape[-2], right.shape[-1]), dtype=out_dtype or left.dtype)


def _is_aligned(matrix: torch.Tensor) -> bool:
    """Whether rows, or columns of a transposed matrix, start at multiples of 16 bytes, as the kernel requires."""
    return max(matrix.stride()[-2:]) * matrix.element_size() % 16 == 0


FAKES: dict[Any, Callable[..., Any]] = {private("_grouped_mm").default: _grouped_mm}


def spread_evenly(elements: int, bins: int) -> torch.Tensor:
    """How often each of some bins occurs, if they occur evenly. The counts add up."""
    return torch.tensor([elements // bins + (each < elements % bins) for each in range(bins)])


def packed(padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[tuple[int, ...], torch.Tensor]:
    """The result of packing: the shape of the rows within their lengths, and the sequences at each time step."""
    _, batch_sizes = private("_pack_padded_sequence")(torch.zeros(*padded.shape[:2], 1), lengths, batch_first)
    return (int(lengths.sum()), *padded.shape[2:]), batch_sizes
