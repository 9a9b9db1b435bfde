"""Fake mode: what an operator returns is what torch's own fake mode returns, the first time and every other time."""

from contextlib import nullcontext

import pytest
import torch
import torch._subclasses.fake_tensor as fake
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from surefoot.torch_inside.fake_mode import FakeMode
from surefoot.torch_inside.version import numbers
from surefoot.world.world import FakeWorld

aten = torch.ops.aten


def matrix(**settings) -> torch.Tensor:
    return torch.empty(4, 6, **settings)


SIZE = (3, 3, 3, 3)
CALLS = {
    "product": lambda: matrix() @ torch.empty(6, 3),
    "linear of three dimensions": lambda: torch.nn.functional.linear(torch.empty(2, 4, 6), torch.empty(5, 6)),
    "unsafe view": lambda: aten._unsafe_view.default(matrix(), [24]),
    "whole number": lambda: matrix(dtype=torch.int64) * 2,
    "true": lambda: matrix(dtype=torch.int64) * True,
    "fraction": lambda: matrix(dtype=torch.int64) * 2.0,
    "other dtype": lambda: matrix().to(torch.bfloat16),
    "transposed": lambda: matrix().t() + 1,
    "part": lambda: matrix()[1:3, ::2],
    "part of a part": lambda: matrix()[1:][1:] + 0,
    "channels last": lambda: torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last) * 2,
    "two results": lambda: torch.sort(matrix()),
    "several views": lambda: matrix().chunk(3, dim=1),
    "list": lambda: torch.cat([matrix(), matrix()]),
    "lists": lambda: torch._foreach_add([matrix(), matrix()], 1),
    "in place": lambda: matrix().add_(1),
    "for gradients": lambda: matrix(requires_grad=True).exp(),
    "conjugated": lambda: matrix(dtype=torch.complex64).conj() * 2,
    "sparse": lambda: torch.sparse_coo_tensor(
        matrix(dtype=torch.int64), torch.empty(6), check_invariants=False, size=SIZE
    ),
}


def described(tree) -> list:
    """All that tells a result from another."""
    parts = tree if isinstance(tree, list | tuple) else [tree]
    return [
        (
            type(each),
            each.dtype,
            each.shape,
            each.layout,
            each.device,
            each.requires_grad,
            each.is_conj(),
            (each.stride(), each.storage_offset(), each.untyped_storage().nbytes())
            if each.layout is torch.strided
            else (),
            torch._C._dispatch_keys(each),
            {name: value for name, value in vars(each).items() if name != "fake_mode"},
        )
        for each in parts
    ]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # until torch 2.12
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_torch(name: str):
    with FakeTensorMode(allow_non_fake_inputs=True):
        expected = described(CALLS[name]())
    with FakeMode():
        assert [described(CALLS[name]()) for _ in range(3)] == [expected] * 3


def test_views_share_the_storage_of_their_operand_when_they_are_remembered_too():
    with FakeMode():
        for _ in range(3):
            whole = matrix()
            for view in (whole.t(), whole[2:], aten._unsafe_view.default(whole, [24]), *whole.chunk(2)):
                assert view.untyped_storage()._cdata == whole.untyped_storage()._cdata


def test_operands_that_differ_are_not_taken_for_alike():
    with FakeMode():
        assert [(matrix(dtype=torch.int64) * by).dtype for by in (1, 1.0, True)] == [
            torch.int64,
            torch.float32,
            torch.int64,
        ]
        assert [torch.empty(*shape).sum(0).shape for shape in ((2, 3), (3, 2))] == [(3,), (2,)]
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.full((2,), 1.0).dtype is torch.float64
        finally:
            torch.set_default_dtype(before)
        assert torch.full((2,), 1.0).dtype is torch.float32


def test_it_is_remembered():
    with FakeMode():
        for _ in range(2):
            hits = FakeTensorMode.cache_hits
            matrix().exp()
        assert FakeTensorMode.cache_hits == hits + 2, "torch no longer asks FakeMode._cache_key: see fake_mode.py"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (fake, "_DISPATCH_HANDLE_DIRECTLY"),
        (fake, "_DISPATCH_META_HANDLERS"),
        (fake, "_DispatchCacheKey"),
        (FakeTensorMode, "_cached_dispatch_impl"),
        (FakeTensorMode, "_cache_key"),
        (FakeTensorMode, "_get_output_tensor_from_cache_entry"),
        (FakeTensor, "fake_device"),
        (torch.Tensor, "_make_subclass"),
        (torch._C, "_set_warn_deprecated_on_mutable_data_ptr"),
        (torch._C, "_get_default_device"),
    ],
)
def test_torch_still_has_what_the_fake_mode_reaches_for(owner, name: str):
    known = hasattr(owner, name) or name in owner.__annotations__
    assert known, f"torch {torch.__version__} has no {owner.__name__}.{name}: see fake_mode.py"


@pytest.mark.skipif(numbers(torch.__version__) < (2, 10), reason="since torch 2.10")
def test_torch_still_asks_the_fake_mode_whether_to_skip_dynamo():
    assert hasattr(FakeTensorMode, "_should_skip_dynamo")


@pytest.mark.parametrize("layer", [lambda: nn.Linear(37, 41), lambda: nn.LSTM(7, 11), lambda: nn.BatchNorm2d(13)])
def test_a_module_on_fakes_can_be_moved_to_another_dtype(layer):
    """The odd sizes are those of no other test: torch remembers no result that it has seen before."""
    with FakeWorld():
        module = layer()
        weights = list(module.parameters())
        if isinstance(module, nn.Linear):
            module(torch.empty(2, 37)).sum().backward()
        assert module.to(torch.bfloat16) is module
        assert [id(each) for each in module.parameters()] == [id(each) for each in weights]
        assert {each.dtype for each in module.parameters()} == {torch.bfloat16}
        assert {each.grad.dtype for each in module.parameters() if each.grad is not None} <= {torch.bfloat16}
        module.double().float()
        assert {each.dtype for each in module.parameters()} == {torch.float32}


@pytest.mark.parametrize("world", [nullcontext, FakeWorld], ids=["real", "fake"])
def test_a_tensor_that_an_operator_returned_twice_is_one_tensor(world):
    """Backward of an LSTM gives both biases the same gradient, so autograd copies it for each."""
    with world():
        layer = nn.LSTM(19, 23)
        layer(torch.empty(5, 3, 19).fill_(0.1))[0].sum().backward()
        gradients = layer.bias_ih_l0.grad, layer.bias_hh_l0.grad
        assert len({each.untyped_storage()._cdata for each in gradients}) == 2
