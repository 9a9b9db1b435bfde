"""updates-rounded-away: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, plain, sgd, twin

pytestmark = pytest.mark.sweep


@twin("updates-rounded-away")
def _(buggy):
    model = mlp().bfloat16()
    return plain(model, x=X.bfloat16(), optimizer=sgd(model, lr=1e-6 if buggy else 0.5))


@pytest.mark.parametrize(("rate", "expected"), [(1e-3, ["updates-rounded-away"]), (3e-2, [])])
def test_single_tensors_may_stand_still(rate, expected):
    model = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X.bfloat16()).float(), Y).backward()
            optimizer.step()
    assert [each for each in named(seen.findings) if each == "updates-rounded-away"] == expected
