"""FLOPs equal hand counts, also where torch's own counter says 0."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from surefoot.meters.books import Books


def flops_of(model: nn.Module, *inputs: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Books(model) as books:
        model(*inputs).sum().backward()
        optimizer.step()
    return books.steps[0].tally


class Attend(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q * self.scale, k * self.scale, v * self.scale)


@pytest.mark.parametrize(("batch", "heads", "queries", "keys", "width"), [(2, 3, 16, 16, 8), (1, 2, 5, 12, 16)])
def test_attention_by_hand(batch, heads, queries, keys, width):
    shapes = [(batch, heads, length, width) for length in (queries, keys, keys)]
    inputs = [torch.randn(shape) for shape in shapes]
    tally = flops_of(Attend(width), *inputs)
    product = 2 * batch * heads * queries * keys * width
    assert tally.total("flops/forward") == 2 * product  # scores, and weighted values
    assert tally.total("flops/backward") == 5 * product  # scores again; gradients of v, probabilities, q, k
    with FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(*inputs)
    assert counter.get_total_flops() == 0, "torch counts attention on the CPU now: compare the formulas"


def test_convolution_by_hand():
    model = nn.Conv2d(3, 8, kernel_size=5, padding=2)
    tally = flops_of(model, torch.randn(2, 3, 10, 10))
    product = 2 * 2 * 8 * 10 * 10 * 3 * 5 * 5
    assert tally.total("flops/forward") == product
    assert tally.total("flops/backward") == product  # the weight's gradient; the input needs none


def test_flops_are_booked_where_they_happen():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 2)))
    tally = flops_of(model, torch.ones(3, 4))
    assert tally.total("flops/forward/0") == 2 * 3 * 4 * 8
    assert tally.total("flops/forward/1.0") == 2 * 3 * 8 * 2
    assert tally.total("flops/backward/1.0") == 2 * 2 * 3 * 8 * 2
    assert tally.total("flops/backward/0") == 2 * 3 * 4 * 8
    assert tally.total("flops/update") == 0
