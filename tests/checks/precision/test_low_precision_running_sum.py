"""low-precision-running-sum: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.programs import X, Y, looped, mlp, named, plain, twin

pytestmark = pytest.mark.sweep


@twin("low-precision-running-sum")
def _(buggy):
    total = torch.zeros((), dtype=torch.bfloat16 if buggy else torch.float32)

    def add(_):
        total.add_(0.5)

    return plain(mlp(), after=add)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("in_place", [True, False])
def test_an_average_of_weights_needs_more_than_half_precision(dtype, in_place):
    model = mlp()
    average = {name: each.detach().to(dtype, copy=True) for name, each in model.state_dict().items()}

    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        for name, each in model.state_dict().items():
            if in_place:
                average[name].mul_(0.99).add_(each.to(dtype), alpha=0.01)
            else:
                average[name] = 0.99 * average[name] + 0.01 * each.to(dtype)

    assert looped(step, model=model) == (["low-precision-running-sum"] if dtype == torch.bfloat16 else [])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_hits_of_an_evaluation_that_are_counted_in_half_precision(dtype):
    model = mlp()

    def evaluate(step):
        hits = torch.zeros((), dtype=dtype)
        with torch.no_grad():
            for part in (X[:2], X[2:4], X[4:6], X[6:]):
                hits += (model(part).argmax(-1) == 0).sum()

    expected = ["low-precision-running-sum"] if dtype is torch.bfloat16 else []
    assert named(plain(model, after=evaluate)) == expected
