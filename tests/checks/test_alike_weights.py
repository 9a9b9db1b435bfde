"""Weights that begin alike on purpose: gains, tables of ones, squares, activations; and their twins."""

import pytest
import torch
from torch import nn

from tests.checks.test_variants import named
from tests.checks.twins import Module, X, mlp, numbers, plain, whole

pytestmark = pytest.mark.sweep


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


@pytest.mark.parametrize("copied", [True, False])
def test_matrices_may_begin_as_the_same_square(copied):
    def forward(model, x):
        return (x @ model.moves @ model.seen)[:, :2]

    model = Module(forward)
    first = numbers(4, 4) if copied else torch.eye(4)
    model.moves, model.seen = nn.Parameter(first.clone()), nn.Parameter(first.clone())
    assert ("untied-weights" in named(plain(model))) is copied


@pytest.mark.parametrize("layer", [nn.PReLU, lambda: nn.Linear(8, 8)])
def test_an_activation_may_stand_twice(layer):
    shared = layer()
    found = named(plain(mlp(shared, nn.Linear(8, 8), shared), x=X))
    assert ("repeated-layer-object" in found) is isinstance(shared, nn.Linear)
