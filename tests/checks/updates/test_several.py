"""Tests that concern several rules about updates."""

import pytest
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, SequentialLR, StepLR

import surefoot
from surefoot.watch import watch_script
from tests.checks.loaders import by_permutation, stepped
from tests.checks.programs import X, mlp, named, sgd
from tests.checks.updates.programs import update


def warm_and_cosine(horizon):
    def schedule(optimizer):
        parts = [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, horizon)]
        return SequentialLR(optimizer, parts, [4])

    return schedule


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (warm_and_cosine(3), ["scheduler-at-wrong-rate"]),
        (warm_and_cosine(16), []),
        (lambda optimizer: StepLR(optimizer, 1, 0.1), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: StepLR(optimizer, 8, 0.1), []),
        (lambda optimizer: LinearLR(optimizer, 1.0, 0.0, 3), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=20_000), ["scheduler-at-wrong-rate"]),
        (lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=21), []),
        (lambda optimizer: LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 1e5)), ["zero-learning-rate"]),
        (lambda optimizer: LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10)), []),
    ],
)
def test_rates_over_a_whole_run(schedule, expected):
    assert stepped(by_permutation, schedule=schedule) == expected


SCRIPT = """
import math, torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(512, 4), torch.randn(512, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr={made_with})
for step in range(40):
    for part in range(4):
        rows = torch.randint(512, (16,))
        (nn.functional.mse_loss(model(x[rows]), y[rows]) / 4).backward()
    optimizer.param_groups[0]["lr"] = {rate}
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("made_with", "rate", "expected"),
    [
        (0.1, "0.1 * 0.5 * (1 + math.cos(math.pi * step / 40))", []),
        (0.1, "0.1 * 0.5 * (1 + math.cos(math.pi * min(1, 4 * step / 40)))", ["scheduler-at-wrong-rate"]),
        (0.1, "0.1 * 0.7 ** step", ["scheduler-at-wrong-rate"]),
        (0.1, "0.1 * min(1, (step + 1) / 20)", []),
        (0.1, "0.1 * min(1, (step + 1) / 4000)", ["zero-learning-rate"]),
        (1.0, "0.01 * min(1, (step + 1) / 10)", []),
        (0.1, "0.1 * (step < 10)", ["zero-learning-rate", "scheduler-at-wrong-rate"]),
    ],
)
def test_rates_that_a_loop_sets_are_judged_by_their_course(tmp_path, made_with, rate, expected):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(made_with=made_with, rate=rate))
    assert named(watch_script(str(script)).findings) == expected


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize("times", [1, 2])
def test_an_optimizer_may_update_less_often_than_its_schedule_counts(times):
    often, seldom = mlp(), mlp()
    optimizers = [sgd(often), sgd(seldom)]
    schedulers = [LinearLR(each, 1.0, 0.1, total_iters=40) for each in optimizers]
    with surefoot.watch() as seen:
        for number in range(20):
            update(often, optimizers[0])
            if number % 4 == 3:
                update(seldom, optimizers[1], X + 1)
            for scheduler in schedulers * times:
                scheduler.step()
    assert ("scheduler-at-wrong-rate" in named(seen.findings)) is (times == 2)
    assert "scheduler-out-of-order" not in named(seen.findings)
