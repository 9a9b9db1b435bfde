"""FLOPs equal hand counts, also where torch's own counter says 0."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from surefoot.meters.books import Books
from surefoot.meters.flops import FORMULAS, OTHERS
from surefoot.torch_inside.version import numbers


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
    assert tally.total("flops/backward") == 4 * product  # gradients of v, probabilities, q, k
    assert tally.total("flops/recompute") == product  # the scores again, because the kernel kept none
    with FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(*inputs)
    theirs = 0 if numbers(torch.__version__) < (2, 15) else 2 * product
    assert counter.get_total_flops() == theirs, "torch counts attention on the CPU in another way: compare the formulas"


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


@pytest.mark.parametrize("layers", [1, 2])
def test_lstm_by_hand_where_torch_counts_nothing(layers: int):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(6, 8, layers, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0]

    x = torch.randn(3, 5, 6)
    tally = flops_of(Recurrent(), x)
    one = [2 * 3 * 5 * 4 * 8 * (inputs + 8) for inputs in [6, 8][:layers]]
    assert tally.total("flops/forward") == sum(one)
    assert tally.total("flops/backward") == 2 * sum(one)
    with FlopCounterMode(display=False) as counter:
        Recurrent()(x)
    assert counter.get_total_flops() == 0, "torch counts the LSTM on the CPU now: compare the formulas"


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_agree_with_torch_where_torch_counts(kind, groups: int):
    model = nn.Sequential(kind(4, 6, 3, stride=2, groups=groups), kind(6, 2, 3, padding=1, groups=groups))
    x = torch.randn(2, 4, *([9] * (1 if kind is nn.Conv1d else 2)))
    tally = flops_of(model, x)
    with FlopCounterMode(display=False) as counter:
        loss = model(x).sum()
        forward = counter.get_total_flops()
        loss.backward()
    assert tally.total("flops/forward") == forward
    # Backward is twice forward, less the input's gradient of the first layer. torch counts more for groups.
    assert tally.total("flops/backward") == 2 * forward - tally.total("flops/forward/0")
    assert tally.total("flops") == counter.get_total_flops() or groups > 1


@pytest.mark.parametrize("make", [torch.mm, torch.bmm, torch.addmm, torch.baddbmm])
def test_products_agree_with_torch(make):
    batched = "b" in make.__name__
    left, right = (torch.randn(*([4] if batched else []), *shape, requires_grad=True) for shape in ((3, 5), (5, 7)))
    added = [torch.randn(*([4] if batched else []), 3, 7)] if "add" in make.__name__ else []

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.right = nn.Parameter(right.detach())

        def forward(self, left):
            return make(*added, left, self.right)

    tally = flops_of(Product(), left)
    with FlopCounterMode(display=False) as counter:
        Product()(left).sum().backward()
    assert tally.total("flops") == counter.get_total_flops() == 3 * 2 * 3 * 5 * 7 * (4 if batched else 1)


def test_recomputation_is_hardware_flops_and_not_model_flops():
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU())

        def forward(self, x):
            return checkpoint(self.block, self.first(x), use_reentrant=False)

    tally = flops_of(Recomputed(), torch.ones(4, 8))
    product = 2 * 4 * 8 * 8
    assert tally.total("flops/recompute/block.0") == product
    assert tally.total("flops/forward") == 2 * product
    assert tally.total("flops/backward") == 3 * product
    assert tally.total("flops") == 6 * product


def test_grouped_products_count_every_row_once():
    from surefoot.meters.flops import FORMULAS

    rows, groups = torch.randn(12, 8), torch.randn(3, 8, 5)
    assert FORMULAS[torch.ops.aten._grouped_mm](torch.empty(12, 5), rows, groups, None) == 2 * 12 * 8 * 5


def test_attention_of_documents_side_by_side_counts_as_each_alone():
    lengths, heads, width = [5, 1, 24], 2, 8
    starts = torch.tensor([0, 5, 6, 30], dtype=torch.int32)
    flat = torch.zeros(30, heads, width)
    alone = [torch.zeros(1, heads, length, width) for length in lengths]
    kernel = "_scaled_dot_product_flash_attention"
    one, one_back = (FORMULAS[getattr(torch.ops.aten, name)] for name in (kernel, f"{kernel}_backward"))
    whole, back = (OTHERS[f"torch_attn._varlen_attn{end}"] for end in ("", "_backward"))
    assert whole(None, flat, flat, flat, starts, starts, 24, 24) == sum(one(None, x, x, x) for x in alone)
    found = back(None, flat, flat, flat, flat, flat, flat, starts, starts, 24, 24)
    assert found == sum(one_back(None, x, x, x, x) for x in alone)
