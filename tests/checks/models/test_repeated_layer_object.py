"""repeated-layer-object: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy

import pytest
import torch
from torch import nn

from tests.checks.programs import Module, X, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("repeated-layer-object")
def _(buggy):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4)] * 3 if buggy else [nn.Linear(4, 4) for _ in range(3)]
    stack = nn.Sequential(*(each for layer in layers for each in (layer, nn.ReLU())))
    return plain(nn.Sequential(stack, nn.Linear(4, 2)))


@pytest.mark.parametrize("layer", [nn.PReLU, lambda: nn.Linear(8, 8)])
def test_an_activation_may_stand_twice(layer):
    shared = layer()
    found = named(plain(mlp(shared, nn.Linear(8, 8), shared), x=X))
    assert ("repeated-layer-object" in found) is isinstance(shared, nn.Linear)


def shared(make) -> list[str]:
    def forward(self, x):
        h = self.begin(x).relu()
        for layer in self.layers:
            h = h + layer(h).relu()
        return self.end(h)

    model = Module(forward, begin=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))
    model.layers = nn.ModuleList(make(nn.Linear(8, 8)) for _ in range(3)) if make else None
    return named(plain(model))


def test_a_layer_that_is_shared_inside_of_others():
    one = nn.Linear(8, 8)
    assert shared(lambda own: nn.Sequential(nn.LayerNorm(8), own)) == []
    assert shared(lambda own: nn.Sequential(nn.LayerNorm(8), one)) == ["repeated-layer-object"]
    assert shared(lambda own: copy.copy(one)) == ["repeated-layer-object"]


def test_one_layer_twice_among_others_is_seen():
    torch.manual_seed(0)
    twice = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert named(plain(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), twice, twice, nn.Linear(4, 2)))) == [
        "repeated-layer-object"
    ]
