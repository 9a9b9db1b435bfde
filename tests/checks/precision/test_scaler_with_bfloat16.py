"""scaler-with-bfloat16: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.precision.programs import scaled
from tests.checks.programs import X, Y, looped, twin

pytestmark = pytest.mark.sweep


@twin("scaler-with-bfloat16")
def _(buggy):
    return scaled(dtype=torch.bfloat16, scaler=buggy)


@pytest.mark.parametrize(("dtype", "expected"), [(None, []), (torch.bfloat16, ["scaler-with-bfloat16"])])
def test_a_scaler_beside_the_dtype_that_torch_takes_on_a_cpu(dtype, expected):
    scaler = torch.amp.GradScaler("cpu")

    def step(model, optimizer):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(X), Y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    assert looped(step) == expected
