"""Workspaces on a GPU target: by rule, with the sources' numbers."""

import torch
from torch import nn

import surefoot
from surefoot.meters.books import Books
from surefoot.world.gpu.target import gpu
from surefoot.world.gpu.workspaces import GpuKernels
from surefoot.world.world import FakeWorld

aten = torch.ops.aten
MIB = 2**20


def of(func, *args):
    kernel = GpuKernels(gpu("a100-sxm-80gb"), in_backward=lambda: False).measured(func, args, {})
    return 0 if kernel is None else kernel.workspace_bytes


def test_cublas_keeps_one_workspace_in_forward_and_one_in_backward():
    for name, each in (("a100-sxm-80gb", 8.125 * MIB), ("h100-sxm", 32 * MIB)):
        world = FakeWorld(gpu=gpu(name))
        with world, Books(kernels=world.kernels) as books:
            model, x = nn.Linear(16, 16, bias=False), torch.randn(4, 16)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                model(model(x)).sum().backward()
                optimizer.step()
        for usage in books.steps:
            assert usage.tally.total("memory/workspace") == 2 * each


def test_flash_attention_sums_its_query_gradient_in_float32():
    q = torch.empty(2, 4, 200, 72, dtype=torch.bfloat16)
    sums = 4 * 2 * 4 * 256 * (96 + 1)  # queries in steps of 128, heads in steps of 32
    assert of(aten._scaled_dot_product_flash_attention_backward.default, q, q, q, q) == sums
    k = torch.empty(2, 1, 200, 72, dtype=torch.bfloat16)
    expanded = 2 * 2 * 4 * 200 * 72 * 2
    assert of(aten._scaled_dot_product_flash_attention_backward.default, q, q, k, k) == sums + expanded


def test_memory_efficient_attention_needs_sums_for_halves_only():
    for dtype, sums in ((torch.float32, 0), (torch.bfloat16, 4 * 2 * 4 * 256 * 64)):
        q = torch.empty(2, 4, 200, 64, dtype=dtype)
        rows = 4 * 2 * 4 * 200
        assert of(aten._scaled_dot_product_efficient_attention_backward.default, q, q, q, q) == rows + sums


def test_layer_norm_of_halves_keeps_its_statistics_in_float32():
    with FakeWorld(gpu=gpu("a100-sxm-80gb")):
        out, mean, deviation = torch.native_layer_norm(torch.randn(4, 8, dtype=torch.bfloat16), (8,), None, None, 1e-5)
    assert out.dtype is torch.bfloat16
    assert (mean.dtype, mean.shape, deviation.dtype) == (torch.float32, (4, 1), torch.float32)


def test_nothing_is_run_on_this_cpu(small_recipe, monkeypatch):
    """The CPU's kernels say nothing of a GPU's."""
    from surefoot.world.kernels import Kernels

    monkeypatch.setattr(Kernels, "measured", lambda *_: 1 / 0)
    surefoot.plan(small_recipe("gpt"), on="h100-sxm")


def test_a_workspace_that_no_rule_knows_is_named(small_recipe):
    plan = surefoot.plan(small_recipe("fashion-convolutional"), on="h100-sxm")
    assert any("no workspace inside convolution, convolution_backward" in note for note in plan.assumptions)


def test_workspaces_are_reserved_too(small_recipe):
    """The caching allocator is told of what kernels keep and of what they take for a moment."""
    plan = surefoot.plan(small_recipe("gpt", "precision=bf16-mixed"), on="h100-sxm")
    assert plan.reserved_bytes["classic"] >= 64 * MIB + plan.parameters * 16
    assert plan.allocated_bytes["classic"] >= plan.live_bytes


def test_the_allocator_is_told_of_what_a_kernel_takes_for_a_moment():
    world, told = FakeWorld(gpu=gpu("a100-sxm-80gb")), []
    with world, Books(kernels=world.kernels) as books:
        books.memory.book.followers.append(lambda booking: told.append((booking.account, booking.size)))
        q = torch.randn(2, 4, 128, 64, dtype=torch.bfloat16, requires_grad=True)
        nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    assert told.count(("workspace", 4 * 2 * 4 * 128 * 65)) == 2
