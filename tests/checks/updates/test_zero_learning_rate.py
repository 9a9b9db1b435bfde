"""zero-learning-rate: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

import surefoot
from tests.checks.programs import X, Y, mlp, named, plain, sgd, twin
from tests.checks.updates.programs import update


@twin("zero-learning-rate")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model, lr=0.0 if buggy else 0.1))


@pytest.mark.sweep
@pytest.mark.parametrize(("most", "found"), [(40, True), (4, False)])
def test_a_warm_up_that_the_run_never_leaves(most, found):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / most))
        for _ in range(9):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            schedule.step()
    assert named(seen.findings) == (["zero-learning-rate"] if found else [])


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(("rate", "expected"), [(1.0, []), (1e-3, ["zero-learning-rate"])])
def test_a_factor_may_be_the_whole_rate(rate, expected):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = LambdaLR(optimizer, lambda step: 64**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5))
        for _ in range(10):
            update(model, optimizer)
            scheduler.step()
    assert named(seen.findings) == expected
