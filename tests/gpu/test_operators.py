"""Operators on a GPU target: what they keep for backward, and which attention kernel is taken when."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from surefoot.torch_inside.modes import TorchDispatchMode
from surefoot.world.gpu.operators import can_be_efficient, can_flash
from surefoot.world.gpu.target import Gpu, gpu
from surefoot.world.world import FakeWorld

AMPERE, VOLTA = gpu("a100-sxm-80gb"), gpu("v100-sxm-16gb")


class Names(TorchDispatchMode):
    """The operators that were executed."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def kept(compute, *inputs):
    """The bytes of each tensor that is kept for backward, without the inputs."""
    given = {id(each.untyped_storage()) for each in inputs}
    sizes = []

    def keep(tensor):
        if id(tensor.untyped_storage()) not in given:
            sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        compute(*inputs).sum().backward()
    return sizes


@pytest.fixture
def on_gpu():
    with FakeWorld(gpu=AMPERE):
        yield


def test_dropout_keeps_one_byte_per_element(on_gpu):
    x = torch.randn(64, 128, requires_grad=True)
    assert kept(lambda x: F.dropout(x, 0.1), x) == [64 * 128]


def test_on_this_cpu_dropout_keeps_a_float():
    with FakeWorld():
        x = torch.randn(64, 128, requires_grad=True)
        assert kept(lambda x: F.dropout(x, 0.1), x) == [4 * 64 * 128]


def test_dropout_in_evaluation_is_nothing(on_gpu):
    x = torch.randn(4, 4)
    assert F.dropout(x, 0.1, training=False).untyped_storage() is x.untyped_storage()


def test_rms_norm_keeps_one_float_per_row(on_gpu):
    x = torch.randn(8, 64, 128, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(128, dtype=torch.bfloat16, requires_grad=True)
    assert kept(lambda x, weight: F.rms_norm(x, (128,), weight), x, weight) == [4 * 8 * 64]
    assert x.grad.shape == x.shape
    assert weight.grad.shape == weight.shape


def test_rms_norm_with_a_weight_of_another_dtype_is_not_fused(on_gpu):
    x = torch.randn(8, 128, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(128, requires_grad=True)
    assert sum(kept(lambda x, weight: F.rms_norm(x, (128,), weight), x, weight)) > 4 * 8 * 128


def test_softmax_from_half_to_float_makes_no_copy_of_its_input(on_gpu):
    x = torch.randn(8, 16, dtype=torch.float16)
    with Names() as names:
        assert x.softmax(-1, dtype=torch.float32).dtype is torch.float32
        assert x.bfloat16().log_softmax(-1, dtype=torch.float32).dtype is torch.float32
    assert names.seen == ["_softmax", "_to_copy", "_to_copy", "_log_softmax"]


def test_attention_keeps_its_result_and_a_float_per_query(on_gpu):
    q = torch.randn(2, 4, 256, 64, dtype=torch.bfloat16, requires_grad=True)
    result, sums = 2 * 4 * 256 * 64 * 2, 2 * 4 * 256 * 4
    sizes = kept(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    assert sorted(sizes, reverse=True)[:3] == [result, sums, 16]
    assert sum(sizes) == result + sums + 16 + 8  # and the state of the random generator


@pytest.mark.parametrize(
    ("on", "dtype", "mask", "kernel"),
    [
        (AMPERE, torch.bfloat16, False, "_scaled_dot_product_flash_attention"),
        (AMPERE, torch.bfloat16, True, "_scaled_dot_product_efficient_attention"),
        (AMPERE, torch.float32, False, "_scaled_dot_product_efficient_attention"),
        (VOLTA, torch.float16, False, "_scaled_dot_product_efficient_attention"),
        (VOLTA, torch.bfloat16, False, "bmm"),
        (AMPERE, torch.float64, False, "bmm"),
    ],
)
def test_the_attention_kernel_follows_generation_dtype_and_mask(on, dtype, mask, kernel):
    with FakeWorld(gpu=on), Names() as names:
        q = torch.randn(2, 4, 32, 64, dtype=dtype)
        F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(32, 32, dtype=torch.bool) if mask else None)
    assert kernel in names.seen


def test_a_kernel_that_is_ruled_out_is_not_taken(on_gpu):
    q = torch.randn(2, 4, 32, 64, dtype=torch.bfloat16)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), Names() as names:
        F.scaled_dot_product_attention(q, q, q)
    assert "_scaled_dot_product_efficient_attention" in names.seen
    with sdpa_kernel(SDPBackend.MATH), Names() as names:
        F.scaled_dot_product_attention(q, q, q)
    assert "bmm" in names.seen


def attention(shape=(2, 4, 32, 64), dtype=torch.bfloat16, keys=None, width=None):
    q = torch.empty(shape, dtype=dtype)
    k = torch.empty((*shape[:2], keys or shape[2], shape[3]), dtype=dtype)
    return q, k, torch.empty((*k.shape[:3], width or shape[3]), dtype=dtype)


FREE = {"mask": None, "dropout": 0.0, "causal": False, "grouped": False}


def test_flash_attention_takes_only_what_sdp_utils_lets_it_take():
    assert can_flash(AMPERE, *attention(), **FREE)
    assert not can_flash(AMPERE, *attention((2, 4, 32, 264)), **FREE)
    assert not can_flash(AMPERE, *attention(width=32), **FREE)
    assert not can_flash(AMPERE, *attention(keys=16), **{**FREE, "causal": True})
    assert can_flash(AMPERE, *attention(keys=16), **FREE)
    q, k, v = attention()
    assert not can_flash(AMPERE, q, k[:, :2], v[:, :2], **FREE)
    assert can_flash(AMPERE, q, k[:, :2], v[:, :2], **{**FREE, "grouped": True})


def test_wide_heads_are_no_flash_attention_in_training_on_small_chips():
    small = Gpu("small", 1, (8, 6))
    for width, dropout in itertools.product((128, 200, 256), (0.0, 0.1)):
        q, k, v = attention((1, 2, 16, width))
        q.requires_grad_()
        wanted = width == 128 or (width == 256 and not dropout)
        assert can_flash(small, q, k, v, **{**FREE, "dropout": dropout}) is wanted
        assert can_flash(AMPERE, q, k, v, **{**FREE, "dropout": dropout})


def test_memory_efficient_attention_wants_aligned_heads():
    assert can_be_efficient(AMPERE, *attention(dtype=torch.float32), grouped=False)
    assert not can_be_efficient(AMPERE, *attention((2, 4, 32, 20)), grouped=False)
    assert can_be_efficient(AMPERE, *attention((2, 4, 32, 20), dtype=torch.float32), grouped=False)


def test_flash_attention_pads_heads_to_eights(on_gpu):
    q = torch.randn(2, 4, 32, 20, dtype=torch.bfloat16, requires_grad=True)
    with Names() as names:
        out = F.scaled_dot_product_attention(q, q, q)
    assert out.shape == q.shape
    assert "constant_pad_nd" in names.seen


def test_optimizers_and_clipping_take_lists_unless_told_otherwise(on_gpu):
    parameters = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2)]
    for options, named in (({}, True), ({"foreach": False}, False)):
        optimizer = torch.optim.AdamW(parameters, **options)
        for parameter in parameters:
            parameter.grad = torch.randn(4, 4)
        with Names() as names:
            optimizer.step()
        assert any(name.startswith("_foreach_") for name in names.seen) is named
    with Names() as names:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    assert "_foreach_norm" in names.seen
