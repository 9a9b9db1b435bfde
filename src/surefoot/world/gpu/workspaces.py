"""Workspaces: the memory that CUDA's kernels take besides their results, by rules. No kernel is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from surefoot.torch_inside.operators import private
from surefoot.torch_inside.sparse import is_sparse
from surefoot.trees import tensors_in
from surefoot.world.gpu.operators import HALVES
from surefoot.world.gpu.target import Gpu
from surefoot.world.kernels import Kernel, Result, called

aten = torch.ops.aten
_PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
_UNKNOWN = (aten.convolution, aten.convolution_backward, aten.mkldnn_rnn_layer, aten.mkldnn_rnn_layer_backward)


class GpuKernels:
    """Replaces `Kernels` when a step is planned for a GPU."""

    def __init__(self, gpu: Gpu, *, in_backward: Callable[[], bool]) -> None:
        self.gpu, self.in_backward = gpu, in_backward
        self.too_large: set[Any] = set()
        self.unknown: set[str] = set()
        """Operators that were seen, and whose workspace no rule knows."""
        self.sparse: dict[Any, Kernel] = {}
        """Calls on sparse tensors, as the CPU ran them."""
        self._products: dict[bool, Kernel] = {}

    def measured(self, func: Any, args: Any, kwargs: Any) -> Kernel | None:
        """The kernel of a call. None if it needs no memory besides its results."""
        packet = func.overloadpacket
        if self.sparse and is_sparse(func, tensors_in([args, kwargs]), kwargs):
            return self.sparse.get(called(func, args, kwargs))
        if packet in _PRODUCTS:
            return self._product()
        if packet in _UNKNOWN:
            self.unknown.add(packet.__name__)
        rule = _RULES.get(packet)
        return None if rule is None else rule(*args)

    def _product(self) -> Kernel:
        """A cuBLAS handle keeps its workspace. Autograd's thread has its own handle."""
        backward = self.in_backward()
        if backward not in self._products:
            workspace = torch.empty(self.gpu.blas_workspace_bytes, dtype=torch.uint8)
            self._products[backward] = Kernel((), 0, (workspace,))
        return self._products[backward]


def _flash_backward(grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *_: Any) -> Kernel:
    """As in `mha_bwd`: sums of dq and one number per query in float32, and dk and dv for every query head."""
    batch, heads, queries, width = q.shape
    rounded = -(-queries // 128) * 128
    rounded_width = -(-width // 32) * 32
    sums = 4 * batch * heads * rounded * (rounded_width + 1)
    expanded = 0 if k.shape[1] == heads else 2 * batch * heads * k.shape[-2] * width * q.element_size()
    return Kernel((), sums + expanded)


def _efficient_backward(grad: torch.Tensor, q: torch.Tensor, *_: Any) -> Kernel:
    """One number per query in float32, and for halves the sums of dq in float32."""
    batch, heads, queries, width = q.shape
    sums = 4 * batch * heads * (-(-queries // 64) * 64) * width if q.dtype in HALVES else 0
    return Kernel((), 4 * batch * heads * queries + sums)


def _layer_norm(x: torch.Tensor, shape: list[int], *_: Any) -> Kernel | None:
    """Mean and deviation are float32 if the input is a half."""
    if x.dtype not in HALVES:
        return None
    rows = (*x.shape[: x.dim() - len(shape)], *[1] * len(shape))
    statistic = _contiguous(rows)
    return Kernel((None, statistic, statistic), 0)


def _contiguous(shape: tuple[int, ...]) -> Result:
    made = torch.empty(shape, dtype=torch.float32)
    return Result(shape, made.stride(), torch.float32, made.untyped_storage().nbytes())


_RULES: dict[Any, Callable[..., Kernel | None]] = {
    private("_scaled_dot_product_flash_attention_backward"): _flash_backward,
    private("_scaled_dot_product_efficient_attention_backward"): _efficient_backward,
    aten.native_layer_norm: _layer_norm,
}
