"""scaler-skips-updates: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.precision.programs import EARLY, in_half_precision, scaled
from tests.checks.programs import X, Y, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("scaler-skips-updates")
def _(buggy):
    return scaled(factor=1e38 if buggy else 1.0, unscale=None)


@pytest.mark.parametrize("interval", [1, 2000])
def test_a_scale_that_grows_with_every_update_leaves_updates_out(interval):
    model = mlp()
    optimizer = sgd(model, lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=interval)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(24):
            optimizer.zero_grad()
            scaler.scale(100 * F.cross_entropy(model(X), Y)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert named(seen.findings) == (["scaler-skips-updates"] if interval == 1 else [])


@EARLY
@pytest.mark.parametrize(("start", "expected"), [(2.0**80, ["scaler-skips-updates"]), (2.0**20, [])])
def test_a_scale_that_takes_long_to_come_down_leaves_out_the_first_updates(start, expected):
    assert in_half_precision(start, steps=96) == expected


@EARLY
def test_each_of_two_models_waits_for_the_scale_they_share():
    assert in_half_precision(2.0**32, steps=48, towers=2) == []
