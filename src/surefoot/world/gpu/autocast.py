"""Autocast as on CUDA: the operators that CUDA and the CPU cast differently.

The lists come from torch 2.13's `ATen/autocast_mode.h`; `tests/gpu/test_autocast.py` compares them with torch.
An operator that both lists treat alike is left to torch, with its cache of cast weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from surefoot.trees import map_tensors, tensors_in


def _names(text: str) -> list[str]:
    return text.split()


LOWER = _names("""
    _convolution convolution einsum addmv addr mv chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
    _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
""")
FLOAT32 = _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity dist pdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
""")
FLOAT32_UNLESS_ASKED = _names("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
FLOAT32_BY_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
REFUSED = ["binary_cross_entropy"]
AS_THEY_COME = _names("""
    _grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d cat cholesky
    cholesky_inverse cholesky_solve cross_entropy_loss ctc_loss.IntList ctc_loss.Tensor
    fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft
    fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d fractional_max_pool3d geqrf
    grid_sampler_2d grid_sampler_3d index_copy inverse linalg_cholesky linalg_cholesky_ex linalg_cond
    linalg_cond.p_str linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv
    linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_matrix_rank.atol_rtol_float
    linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.tol_tensor linalg_qr linalg_solve linalg_svd
    linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve max_pool3d max_unpool2d max_unpool3d
    multilabel_margin_loss_forward nanquantile nanquantile.scalar orgqr ormqr pinverse polar qr quantile
    quantile.scalar reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d stack
    stft stft.center svd trace triangular_solve view_as_complex
""")

_DTYPE_AT = {"softmax.int": 2, "log_softmax.int": 2}
"""The position of an operator's dtype argument. The others take it by name."""


def autocasting() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The operators that CUDA casts differently, each with a replacement for the CPU's cast."""
    for name in LOWER:
        yield name, _cast(name, _lower)
    for name in FLOAT32:
        yield name, _cast(name, _float32)
    for name in FLOAT32_UNLESS_ASKED:
        yield name, _float32_unless_asked(name)
    for name, overload in FLOAT32_BY_OVERLOAD.items():
        yield name, _float32_by_overload(name, overload)
    for name in WIDEST:
        yield name, _widest(name)
    for name in REFUSED:
        yield name, _refused(name)
    for name in AS_THEY_COME:
        yield name, torch.library.fallthrough_kernel


def _cast(name: str, cast: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    operator = _operator(name)

    def cast_and_run(*args: Any, **kwargs: Any) -> Any:
        with _off():
            return operator(*map_tensors(cast, args), **map_tensors(cast, kwargs))

    return cast_and_run


def _float32_unless_asked(name: str) -> Callable[..., Any]:
    operator, at = _operator(name), _DTYPE_AT.get(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("dtype") if at is None else next(iter(args[at:]), kwargs.get("dtype"))
        if asked is None and _is_castable(args[0]):
            args, kwargs = args[:at], {**kwargs, "dtype": torch.float32}
        with _off():
            return operator(*args, **kwargs)

    return run


def _float32_by_overload(name: str, overload: str) -> Callable[..., Any]:
    plain, with_dtype = _operator(name), _operator(overload)

    def run(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with _off():
            if _is_castable(first):
                return with_dtype(first, *_defaults(name, args), **kwargs, dtype=torch.float32)
            return plain(first, *args, **kwargs)

    return run


def _defaults(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `norm` in full: the overloads with a dtype have no defaults."""
    full: tuple[Any, ...] = (2,) if name == "norm.Scalar" else (2, [], False)
    return *args, *full[len(args) :]


def _widest(name: str) -> Callable[..., Any]:
    operator = _operator(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        widest = torch.get_autocast_dtype("cpu")
        if any(each.dtype is torch.float32 for each in tensors_in([args, kwargs])):
            widest = torch.float32

        def widen(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(widest) if _is_castable(tensor) else tensor

        with _off():
            return operator(*map_tensors(widen, args), **map_tensors(widen, kwargs))

    return run


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{name} is unsafe to autocast, and CUDA refuses it: use {name}_with_logits")

    return refuse


def _off() -> torch.autocast:
    return torch.autocast("cpu", enabled=False)


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _is_castable(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dtype is not torch.float64


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if _is_castable(tensor) else tensor


def _lower(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.get_autocast_dtype("cpu")) if _is_castable(tensor) else tensor
