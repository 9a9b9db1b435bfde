"""rate-too-large-for-adam: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

from tests.checks.programs import mlp, named, plain, sgd, twin


def wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 2))


@twin("rate-too-large-for-adam")
def _(buggy):
    model = wide()
    return plain(model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1 if buggy else 1e-3))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam, torch.optim.Adamax])
def test_others_of_the_family(kind):
    model = wide()
    assert named(plain(model, optimizer=kind(model.parameters(), lr=0.5))) == ["rate-too-large-for-adam"]


def test_a_few_numbers_and_other_optimizers_may_have_large_rates():
    small, large = mlp(), wide()
    assert named(plain(small, optimizer=torch.optim.Adam(small.parameters(), lr=0.1))) == []
    assert named(plain(large, optimizer=sgd(large, lr=0.1))) == []
