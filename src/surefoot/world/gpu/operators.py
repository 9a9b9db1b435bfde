"""Operators that CUDA computes differently from the CPU: dropout, attention, rms_norm, softmax of halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from surefoot.torch_inside.operators import private
from surefoot.world.gpu.target import Gpu

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


def operators(gpu: Gpu) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The operators, each with a replacement for the CPU's implementation."""
    yield "dropout", _dropout
    yield "scaled_dot_product_attention", _attention(gpu)
    yield "rms_norm", _rms_norm
    yield "softmax.int", _softmax(private("_softmax").default)
    yield "log_softmax.int", _softmax(private("_log_softmax").default)


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """One kernel that keeps a mask of booleans. The CPU keeps a mask of floats."""
    if not train or p == 0 or x.numel() == 0:
        return x
    return aten.native_dropout(x, p, train)[0]


def _softmax(kernel: Any) -> Callable[..., torch.Tensor]:
    """Converts float16 to float32 in the same kernel. bfloat16 is converted first, as everywhere."""

    def softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        if x.dtype is torch.float16 and dtype is torch.float32:
            return kernel(x, dim, True)
        return kernel(x if dtype is None else x.to(dtype), dim, False)

    return softmax


# ------------------------------------------------------------------------------------------- rms_norm


class _FusedRmsNorm(torch.autograd.Function):
    """Allocates like the fused kernel: the result, and one float32 per row, kept for backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, normalised: int) -> torch.Tensor:
        rows = torch.empty(x.shape[: x.dim() - normalised], dtype=torch.float32)
        ctx.save_for_backward(x, weight, rows)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None


def _rms_norm(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """The fused kernel, unless the weight's dtype differs from the input's."""
    if weight is not None and weight.dtype != x.dtype:
        return _composite_rms_norm(x, len(shape), weight, eps)
    return _FusedRmsNorm.apply(x, weight, len(shape))  # type: ignore[no-untyped-call]


def _composite_rms_norm(x: torch.Tensor, normalised: int, weight: torch.Tensor, eps: float | None) -> torch.Tensor:
    wide = x.float() if x.dtype in HALVES else x
    squares = wide.pow(2).mean(dim=tuple(range(-normalised, 0)), keepdim=True)
    scaled = wide * squares.add_(torch.finfo(wide.dtype).eps if eps is None else eps).rsqrt()
    return (scaled * weight).to(x.dtype)


# ------------------------------------------------------------------------------------------- attention


def _attention(gpu: Gpu) -> Callable[..., torch.Tensor]:
    """Attention with the kernel that torch chooses on this GPU. Respects `torch.nn.attention.sdpa_kernel`."""

    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        if torch.backends.cuda.flash_sdp_enabled() and can_flash(
            gpu, q, k, v, mask=attn_mask, dropout=dropout_p, causal=is_causal, grouped=enable_gqa
        ):
            return _flash(q, k, v, dropout_p, is_causal, scale)
        if torch.backends.cuda.mem_efficient_sdp_enabled() and can_be_efficient(gpu, q, k, v, grouped=enable_gqa):
            bias = _padded_bias(attn_mask, q, k)
            needs_sums = torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v))
            kernel = private("_scaled_dot_product_efficient_attention")
            return kernel(q, k, v, bias, needs_sums, dropout_p, is_causal, scale=scale)[0]
        kernel = private("_scaled_dot_product_attention_math")
        return kernel(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]

    return attention


def can_flash(
    gpu: Gpu, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
    mask: torch.Tensor | None, dropout: float, causal: bool, grouped: bool,
) -> bool:  # fmt: skip
    """The conditions of `can_use_flash_attention` in ATen/native/transformers/cuda/sdp_utils.cpp.

    On Hopper and Blackwell torch prefers cuDNN's kernel. It has the same conditions and its results the same size.
    """
    width, alike = q.shape[-1], q.shape[-1] == k.shape[-1] == v.shape[-1]
    small_sm = gpu.capability in ((8, 6), (8, 9)) or gpu.capability[0] == 12
    too_wide_for_backward = q.requires_grad and small_sm and (192 < width <= 224 or (width > 224 and dropout > 0))
    return (
        gpu.capability >= (8, 0)
        and q.dtype in HALVES
        and all(each.dim() == 4 for each in (q, k, v))
        and mask is None
        and (alike and width <= 256 and not too_wide_for_backward)
        and not (causal and q.shape[-2] != k.shape[-2])
        and (grouped or q.shape[1] == k.shape[1])
    )


def can_be_efficient(gpu: Gpu, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, grouped: bool) -> bool:
    """The conditions of `can_use_mem_efficient_attention`; a mask may be given."""
    half = q.dtype in HALVES
    aligned = 8 if half else 4 if gpu.capability >= (8, 0) else 1
    dtypes = (torch.float32, torch.float16, *([torch.bfloat16] if gpu.capability >= (8, 0) else []))
    return (
        q.dtype in dtypes
        and all(each.dim() == 4 for each in (q, k, v))
        and q.shape[-1] == k.shape[-1]
        and q.shape[-1] % aligned == v.shape[-1] % aligned == 0
        and not grouped
        and q.shape[1] == k.shape[1]
    )


def _flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    """Flash attention. Pads heads to a multiple of 8, as the kernel requires."""
    width, missing = q.shape[-1], -q.shape[-1] % 8
    if missing:
        scale = width**-0.5 if scale is None else scale
        q, k, v = (F.pad(each, (0, missing)) for each in (q, k, v))
    out = private("_scaled_dot_product_flash_attention")(q, k, v, dropout, causal, False, scale=scale)[0]
    return out[..., :width] if missing else out


def _padded_bias(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """A mask in the kernel's format: floats, rows padded to a multiple of 16, expanded over batch and heads."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    missing = -mask.shape[-1] % 16
    if missing:
        mask = F.pad(mask, (0, missing))[..., : k.shape[-2]]
    return mask.expand(q.shape[0], q.shape[1], q.shape[-2], k.shape[-2])
