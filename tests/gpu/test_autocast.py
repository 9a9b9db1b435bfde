"""Autocast on a GPU target: CUDA's lists as torch has them, and what they do to a step's tensors."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from surefoot.world.gpu import autocast
from surefoot.world.gpu.target import gpu
from surefoot.world.world import FakeWorld

BOTH_ALIKE = {
    "conv1d.padding", "conv2d.padding", "conv3d.padding",  # on CUDA the convolution that they call is cast
    "mkldnn_rnn_layer", "_addmm_activation", "_native_multi_head_attention",  # CPU kernels
}  # fmt: skip


def cast_on(device: str) -> set[str]:
    """The operators that autocast treats on a device, without those for named dimensions of torch 2.12 and older."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    found = {name.removeprefix("aten::") for name in names if has_kernel(name, f"Autocast{device}")}
    return {name for name in found if not re.search("dimname|names_", name, re.IGNORECASE)}


def test_the_lists_name_every_operator_that_cuda_and_the_cpu_cast_otherwise():
    """If this fails, torch's autocast lists changed: compare gpu/autocast.py with ATen/autocast_mode.h."""
    named = {name for name, _ in autocast.autocasting()}
    cuda, cpu = cast_on("CUDA"), cast_on("CPU")
    cudnn = {"cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn"}  # a plan calls none of them
    names = set(torch._C._dispatch_get_all_op_names())
    removed = {name for name in ("cholesky", "qr") if f"aten::{name}" not in names}  # by torch 2.15
    assert cuda - cpu - cudnn <= named
    assert cpu - cuda == (set(autocast.AS_THEY_COME) | BOTH_ALIKE) - removed
    assert named - removed <= cuda | cpu


@pytest.fixture
def on_gpu():
    with FakeWorld(gpu=gpu("a100-sxm-80gb")):
        yield


def test_norms_and_softmax_are_computed_in_float32(on_gpu):
    x = torch.randn(2, 8, 16, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.layer_norm(x, (16,)).dtype is torch.float32
        assert x.softmax(-1).dtype is torch.float32
        assert x.pow(2).dtype is torch.float32
        assert x.sum(-1).dtype is torch.float32
        assert x.norm().dtype is torch.float32
        assert (x @ x.mT).dtype is torch.bfloat16
        assert torch.einsum("bij,bkj->bik", x.float(), x.float()).dtype is torch.bfloat16


def test_on_this_cpu_they_are_not():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.randn(4, 16, dtype=torch.bfloat16).softmax(-1).dtype is torch.bfloat16


def test_a_dtype_that_is_asked_for_is_kept(on_gpu):
    x = torch.randn(4, 16, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.float16):
        assert x.softmax(-1, dtype=torch.float16).dtype is torch.float16
        assert x.sum(-1, dtype=torch.float16).dtype is torch.float16


def test_mixed_operands_take_the_widest_dtype(on_gpu):
    narrow, wide = torch.randn(4, dtype=torch.float16), torch.randn(4)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.dot(narrow, wide).dtype is torch.float32
        assert torch.dot(narrow, narrow).dtype is torch.float16


def test_cross_entropy_keeps_halves_and_a_float32_copy(on_gpu):
    """CUDA's log_softmax is asked for halves by cross_entropy, and nll_loss is cast to float32."""
    head, x = nn.Linear(16, 32), torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(head(x), torch.zeros(8, dtype=torch.long))
    assert loss.dtype is torch.float32
    copied = loss.grad_fn.next_functions[0][0]
    assert copied.name() == "ToCopyBackward0"
    assert copied.next_functions[0][0].name() == "LogSoftmaxBackward0"
    loss.backward()
    assert head.weight.grad.dtype is torch.float32


def test_weights_are_cast_once_in_an_autocast_region(on_gpu):
    """The cache is torch's own."""
    layer, x = nn.Linear(16, 16), torch.randn(4, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = layer(x), layer(x)
    casts = {each.grad_fn.next_functions[2][0].next_functions[0][0] for each in (first, second)}
    assert len(casts) == 1


def test_what_cuda_refuses_is_refused(on_gpu):
    x = torch.rand(4)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)
