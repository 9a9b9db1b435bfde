"""input-changed-in-place: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.checks.programs import Module, X, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("input-changed-in-place")
def _(buggy):
    def forward(self, x):
        return self.end(x.add_(0.01) if buggy else x + 0.01)

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)), x=X.clone())


def test_a_block_that_writes_into_what_it_is_given():
    class Block(nn.Module):
        def __init__(self, inplace):
            super().__init__()
            self.layer, self.inplace = nn.Linear(8, 8), inplace

        def forward(self, h):
            return h + self.layer(F.relu(h - 0.1 if not self.inplace else h, inplace=True))

    def model(inplace):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), Block(inplace), nn.Linear(8, 2))

    assert "input-changed-in-place" not in named(plain(model(False)))
    assert "input-changed-in-place" in named(plain(model(True)))
