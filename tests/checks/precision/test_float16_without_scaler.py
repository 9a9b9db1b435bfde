"""float16-without-scaler: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn

from tests.checks.precision.programs import scaled
from tests.checks.programs import Module, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("float16-without-scaler")
def _(buggy):
    return scaled(dtype=torch.float16, scaler=not buggy, unscale=None)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_body_in_float16_needs_no_scaler(frozen):
    body, head = nn.Linear(4, 8).half().requires_grad_(not frozen), nn.Linear(8, 2)
    model = Module(lambda self, x: self.head(self.body(x.half()).float()), body=lambda: body, head=lambda: head)
    assert ("float16-without-scaler" in named(plain(model))) is not frozen
