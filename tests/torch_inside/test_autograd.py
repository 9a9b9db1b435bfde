"""Autograd numbers its nodes, keeps what it saved under known names, and sums gradients as counted here."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from surefoot import fake_world
from surefoot.meters.meter import Meter, Operators
from surefoot.torch_inside.autograd import (
    current_node,
    factors_of,
    gives_one_twice,
    in_graph_task,
    next_node,
    number,
    running_node,
    saved,
    scatters_gradients,
    signed,
    softmax_dim,
    sums_gradients,
    writes,
)


def test_nodes_are_numbered_in_the_order_of_forward():
    x = torch.ones(2, requires_grad=True)
    first = next_node()
    y = x.exp()
    z = y.sin()
    numbers = [number(y.grad_fn), number(z.grad_fn)]
    assert numbers == [first, first + 1], "torch numbers nodes differently: Phases.maker needs another way"


def test_a_hook_knows_the_node_and_the_backward_that_run():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    seen = []

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append((in_graph_task(), current_node() is not None, running_node()))
            return gradient

    made = Node.apply(y)
    made.sum().backward()
    assert seen == [(True, True, number(made.grad_fn))], "torch no longer tells which node runs"
    assert (in_graph_task(), running_node(), current_node()) == (False, -1, None)


def test_a_node_with_two_gradients_for_one_tensor_is_told():
    seen = []

    class Ear(Meter):
        def operator(self, func, args, kwargs, out):
            if in_graph_task() and func is torch.ops.aten.mul.Tensor:
                seen.append(gives_one_twice())

    x = torch.ones(3, requires_grad=True)
    with Operators([Ear()]):
        (x * x).sum().backward()
        (x * x.detach()).sum().backward()
    assert seen == [True, True, False]


def test_what_a_node_saved_is_read_by_name():
    x = torch.ones(2, 3, requires_grad=True)
    total, added = x.sum(-1), x.add(x.exp(), alpha=2)
    assert [signed(dim) for dim in saved(total.grad_fn, "dim")] == [-1]
    assert tuple(saved(total.grad_fn, "self_sym_sizes")) == (2, 3)
    assert saved(added.grad_fn, "alpha") == 2
    assert saved((x**2).grad_fn, "exponent") == 2
    assert saved(x.exp().grad_fn, "nothing") is None
    assert saved(None, "dim") is None


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_gradients_that_are_scattered_in_place_are_told():
    seen = []

    class Ear(Meter):
        def operator(self, func, args, kwargs, out):
            if scatters_gradients(func):
                seen.append(func.overloadpacket.__name__)

    x = torch.randn(4, 5, requires_grad=True)
    index = torch.zeros(4, 1, dtype=torch.int64)
    with Operators([Ear()]):
        x.gather(1, index).sum().backward()
        x.max(1).values.sum().backward()
        x[index[:, 0]].sum().backward()
        x.index_select(0, index[:, 0]).sum().backward()
        torch.zeros(4, 5).scatter_reduce(0, index.expand(4, 5), x, "amax").sum().backward()  # counts out of place
        torch.zeros(4, 5).index_reduce(0, index[:, 0], x, "amax").sum().backward()
    assert [name.removeprefix("_unsafe_") for name in seen] == ["scatter_add", "scatter", "index_put", "index_add"]


@pytest.mark.parametrize("world", [nullcontext, fake_world], ids=["real", "fake"])
def test_gradients_that_autograd_would_sum_in_place_are_told_from_those_it_cannot(world):
    """A tensor used twice: its first gradient is held by the engine alone, or shared with another branch.

    The third sum is one of a forward that is recomputed.
    """
    seen = []

    class Ear(Meter):
        def operator(self, func, args, kwargs, out):
            if func is torch.ops.aten.add.Tensor and in_graph_task():
                seen.append(sums_gradients(func, args))

    with world():
        x = torch.ones(4, 4, requires_grad=True)
        with Operators([Ear()]):
            h = x * 2
            (h.exp() + h.sin()).sum().backward()
            h = x * 2
            (h + h.sin()).sum().backward()
            checkpoint(lambda h: (h.exp() + h.sin()).tanh(), x * 2, use_reentrant=False).sum().backward()
    assert seen == [True, False, False, True], "autograd holds gradients differently: see autograd.sums_gradients"


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_a_softmax_remembers_its_dimension(dim):
    made = torch.ones(2, 3, requires_grad=True).softmax(dim)
    assert softmax_dim(made.grad_fn) % 2 == dim % 2, "SoftmaxBackward0._saved_dim is no longer the dimension"


def test_a_product_remembers_its_factors_until_its_backward():
    rows, number = torch.ones(3, requires_grad=True) * torch.arange(3.0), torch.ones(3, requires_grad=True) * 2.0
    sizes = [[each.numel() for each in factors_of(made.grad_fn)] for made in (rows, number)]
    largest = [max(each, default=1) for each in sizes]
    assert largest == [3, 1], "MulBackward0 no longer keeps its factors by these names"
    rows.sum().backward()
    assert factors_of(rows.grad_fn) == []


def test_tensors_made_in_inference_mode_can_be_asked_for_their_writes():
    with torch.inference_mode():
        made = torch.ones(2)
    assert writes(made) == 0
