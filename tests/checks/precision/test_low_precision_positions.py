"""low-precision-positions: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

from tests.checks.programs import Module, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("low-precision-positions")
def _(buggy):
    def forward(self, x):
        places = torch.arange(400, dtype=torch.bfloat16 if buggy else torch.float32)
        return self.end(x + places.float().mean() * 0.01)

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)))


POSITIONS = {
    "cast": (lambda t: t.to(torch.bfloat16), ["low-precision-positions"]),
    "met": (lambda t: t[:, None] * torch.ones(2, dtype=torch.bfloat16), ["low-precision-positions"]),
    "summed": (lambda t: torch.ones(len(t), dtype=torch.bfloat16).cumsum(0), ["low-precision-positions"]),
    "waves": (lambda t: (0.3 * t.float()).to(torch.bfloat16).sin(), ["low-precision-positions"]),
    "in any order": (lambda t: (t.flip(0)[::3].bfloat16()[:, None] * 0.01).float().cos(), ["low-precision-positions"]),
    "no angles": (lambda t: t.flip(0)[::3].bfloat16(), []),
    "table": (lambda t: (0.3 * t.float()).sin().to(torch.bfloat16), []),
    "few": (lambda t: t[:200].to(torch.bfloat16), []),
}


@pytest.mark.parametrize("form", POSITIONS)
def test_positions_that_become_half_precision(form):
    made, expected = POSITIONS[form]
    model = Module(lambda self, x: self.body(x + 1e-6 * made(torch.arange(400)).float().mean()), body=mlp)
    assert named(plain(model)) == expected


@pytest.mark.parametrize(("first", "expected"), [(0, []), (1000, ["low-precision-positions"])])
def test_few_positions_that_begin_far_out(first, expected):
    def forward(self, x):
        places = torch.arange(first, first + 4, dtype=torch.bfloat16).float()
        return self.body(x + 0.001 * places)

    assert named(plain(Module(forward, body=mlp))) == expected
