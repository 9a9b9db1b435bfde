"""symmetric-initial-weights: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, Y, mlp, named, numbers, plain, twin, whole

pytestmark = pytest.mark.sweep


@twin("symmetric-initial-weights")
def _(buggy):
    model = mlp()
    if buggy:
        nn.init.constant_(model[0].weight, 0.1)
    return plain(model)


def gated(model, x):
    hidden = torch.relu(model.one(x))
    return model.two(hidden.view(-1, 4, 2) * model.gain if model.many else hidden.view(-1, 4, 2)).flatten(1)[:, :2]


@pytest.mark.parametrize("many", [True, False])
def test_gains_may_begin_as_ones(many):
    model = Module(gated, one=lambda: nn.Linear(4, 8), two=lambda: nn.Linear(2, 2))
    model.gain, model.many = nn.Parameter(torch.ones(4, 2)), many
    assert "symmetric-initial-weights" not in named(plain(model, steps=6))


@pytest.mark.parametrize("by_class", [True, False])
def test_a_table_of_gains_may_begin_as_ones(by_class):
    kinds = whole(6, 8)

    def forward(model, x):
        return model.two(torch.relu(model.one(x)) * (model.gain(kinds) if by_class else 1.0))

    model = Module(forward, one=lambda: nn.Linear(4, 8), gain=lambda: nn.Embedding(6, 8), two=lambda: nn.Linear(8, 2))
    nn.init.ones_(model.gain.weight if by_class else model.one.weight)
    found = named(plain(model, steps=6))
    assert ("symmetric-initial-weights" in found) is not by_class


class Decays(nn.Module):
    """A number for every row, as curves are fitted."""

    def __init__(self, *shape: int):
        super().__init__()
        self.height, self.rate = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, t):
        return self.height.exp() * torch.exp(-self.rate.exp() * t)


def test_numbers_that_begin_as_zero_are_no_layers():
    t, y = numbers(8, 6).abs(), numbers(8, 6, seed=1)
    assert named(plain(Decays(8, 1), loss=F.mse_loss, x=t, y=y)) == []
    assert named(plain(Decays(8, 6), loss=F.mse_loss, x=t, y=y)) == []
    layers = mlp()
    for each in layers.parameters():
        nn.init.zeros_(each)
    assert named(plain(layers)) == ["symmetric-initial-weights"]


def test_layers_side_by_side_may_all_begin_at_zero():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)
            for each in self.parameters():
                nn.init.zeros_(each)

        def forward(self, x):
            return torch.cat([self.first(x), self.second(x)], 1)

    assert named(plain(Heads(), y=Y % 2)) == []


def test_widths_of_drawn_weights_may_begin_alike():
    class Noisy(nn.Module):
        def __init__(self, drawn: bool):
            super().__init__()
            self.mean = nn.Parameter(torch.randn(8, 4) if drawn else torch.full((8, 4), 0.1))
            self.rho = nn.Parameter(torch.full((8, 4), -3.0))
            self.end, self.drawn = nn.Linear(8, 2), drawn

        def forward(self, x):
            noise = torch.randn(8, 4) if self.drawn else 0.0
            return self.end(x @ (self.mean + F.softplus(self.rho) * noise).t())

    torch.manual_seed(0)
    assert named(plain(Noisy(drawn=True))) == []
    assert named(plain(Noisy(drawn=False))) == ["symmetric-initial-weights"]


def zeros(*names: str) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for name in names:
        nn.init.zeros_(model.get_submodule(name).weight)
        nn.init.zeros_(model.get_submodule(name).bias)
    return named(plain(model, steps=6))


def test_layers_in_a_row_that_begin_as_zero_stay_so():
    assert zeros("4") == []
    assert zeros("2", "4") == ["symmetric-initial-weights"]
