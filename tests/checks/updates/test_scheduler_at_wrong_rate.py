"""scheduler-at-wrong-rate: the buggy and the fixed program, variants, and what looks like it and is fine."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, MultiStepLR, StepLR
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from surefoot.watch import watch_script
from tests.checks.loaders import COUNT, INPUTS, LABELS, loader
from tests.checks.programs import X, Y, found_by, mlp, named, numbers, sgd, twin, whole
from tests.checks.saved_state.programs import net, through_a_file, train
from tests.checks.updates.programs import update


@twin("scheduler-at-wrong-rate")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    scheduler = CosineAnnealingLR(optimizer, T_max=3 if buggy else 15)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for x, y in loader(shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                scheduler.step()
    return seen.findings


@pytest.mark.sweep
@pytest.mark.parametrize("per_batch", [True, False])
def test_milestones_that_all_lie_in_the_first_pass(per_batch):
    model, loader = mlp(), DataLoader(TensorDataset(INPUTS, LABELS), 4, shuffle=True)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = MultiStepLR(optimizer, [2, 4], 0.5)
        for _ in range(5):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if per_batch:
                    scheduler.step()
            if not per_batch:
                scheduler.step()
    assert COUNT // 4 > 4
    assert named(seen.findings) == (["scheduler-at-wrong-rate"] if per_batch else [])


@pytest.mark.sweep
def test_a_schedule_that_runs_to_its_end_in_passes_is_at_the_right_rate():
    model = mlp()
    optimizer = sgd(model)
    loader = DataLoader(TensorDataset(numbers(64, 4), torch.arange(64) % 2), 16, shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
        for _ in range(8):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            scheduler.step()
    assert named(seen.findings) == []


@pytest.mark.sweep
def test_updates_are_counted_to_the_end_of_a_long_script(tmp_path):
    """A schedule is judged by all of a run, although only its beginning is looked at."""
    script = tmp_path / "long.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)\n"
        "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        "for step in range(240):\n"
        "    optimizer.zero_grad()\n"
        "    (layer(torch.randn(4, 2)) - 1).square().mean().backward()\n"
        "    optimizer.step()\n"
        "    if step % 120 == 119:\n"
        "        schedule.step()\n",
        encoding="utf-8",
    )
    assert named(watch_script(str(script)).findings) == []


@pytest.mark.sweep
@pytest.mark.parametrize("times", [1, 2])
def test_a_scheduler_moves_once_at_a_time_however_seldom(times):
    model = mlp()
    optimizer = sgd(model)
    scheduler = LambdaLR(optimizer, lambda epoch: 0.5 * (1 + math.cos(math.pi * epoch / 8)))
    with surefoot.watch(model, optimizer) as seen:
        for number in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            for _ in range(times if number % 3 == 2 else 0):
                scheduler.step()
    assert named(seen.findings) == (["scheduler-at-wrong-rate"] if times == 2 else [])


@pytest.mark.sweep
@pytest.mark.parametrize("per_update", [True, False])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: LambdaLR(optimizer, lambda step: 1 - step / 24),
        lambda optimizer: LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / 24))),
        lambda optimizer: LinearLR(optimizer, 1.0, 0.01, total_iters=24),
    ],
)
def test_the_end_of_a_schedule_is_known_though_it_says_none(schedule, per_update):
    model = mlp()
    optimizer = sgd(model)
    scheduler = schedule(optimizer)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(24):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if per_update or number % 8 == 7:
                scheduler.step()
    assert named(seen.findings) == ([] if per_update else ["scheduler-at-wrong-rate"])


def decayed(state, decay: float):
    """A part of a run with a rate that decays in every step, and what is saved of it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    if state is not None:
        for each, its in zip((model, optimizer, scheduler), through_a_file(state), strict=True):
            each.load_state_dict(its)
    for _ in range(12):
        train(model, optimizer, steps=1)
        scheduler.step()
    return [each.state_dict() for each in (model, optimizer, scheduler)]


@pytest.mark.sweep
@pytest.mark.parametrize(("decay", "expected"), [(0.98, []), (0.55, ["scheduler-at-wrong-rate"])])
def test_the_rates_of_a_run_that_goes_on_are_those_of_both_parts(decay, expected):
    with surefoot.watch() as seen:
        decayed(decayed(None, decay), decay)
    assert found_by(seen) == expected


DATA = TensorDataset(numbers(32, 4), whole(2, 32))


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("horizon", "per_update", "severities"),
    [
        (2, False, []),
        (8, True, []),
        (6, True, ["error"]),
        (3, True, ["error"]),
        (5, True, ["warning"]),
        (4, False, ["warning"]),
    ],
)
def test_a_cosine_may_swing_in_whole_passes(horizon, per_update, severities):
    model = mlp()
    optimizer = sgd(model)
    scheduler = CosineAnnealingLR(optimizer, horizon)
    with surefoot.watch(model, optimizer) as seen:
        loader = DataLoader(DATA, 8, shuffle=True)
        for _ in range(6):
            for x, y in loader:
                update(model, optimizer, x, y)
                if per_update:
                    scheduler.step()
            if not per_update:
                scheduler.step()
    found = [each.severity for each in seen.findings.findings if each.check == "scheduler-at-wrong-rate"]
    assert found == severities


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(("horizon", "expected"), [(24, []), (6, ["scheduler-at-wrong-rate"])])
def test_a_schedule_may_count_micro_batches(horizon, expected):
    model = mlp()
    optimizer = sgd(model)
    scheduler = LinearLR(optimizer, 1.0, 0.05, total_iters=horizon)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(24):
            rows = slice(number % 4 * 2, number % 4 * 2 + 2)
            (F.cross_entropy(model(X[rows]), Y[rows]) / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()
    assert named(seen.findings) == expected


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
def test_the_updates_before_a_run_was_resumed_count():
    kept = {}

    def part(passes):
        model = mlp()
        optimizer = sgd(model)
        scheduler = CosineAnnealingLR(optimizer, 6 * 4)
        if kept:
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            scheduler.load_state_dict(kept["scheduler"])
        for _ in range(passes):
            for x, y in loader:
                update(model, optimizer, x, y)
            scheduler.step()
        kept.update(model=model.state_dict(), optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict())

    with surefoot.watch() as seen:
        loader = DataLoader(DATA, 8, shuffle=True)
        part(3)
        part(3)
    assert "scheduler-at-wrong-rate" in named(seen.findings)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(("rates", "expected"), [((0.1, 1e-6), []), ((0.1, 1e-2, 1e-6), ["scheduler-at-wrong-rate"])])
def test_a_later_part_of_a_training_may_have_a_far_smaller_rate(rates, expected):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(12):
            optimizer.param_groups[0]["lr"] = rates[min(number // 3, len(rates) - 1)]
            update(model, optimizer)
    assert named(seen.findings) == expected


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(("start", "end", "found"), [(0.1, 1.0, False), (1.0, 0.1, True)])
def test_a_warm_up_may_end_within_the_first_pass(start, end, found):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = LinearLR(optimizer, start, end, total_iters=8)
        for x, y in DataLoader(TensorDataset(numbers(80, 4), whole(2, 80)), 4, shuffle=True):
            update(model, optimizer, x, y)
            scheduler.step()
            if scheduler.last_epoch == 6:
                break
        assert ("scheduler-at-wrong-rate" in named(seen.findings)) is found


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
@pytest.mark.parametrize(("per_update", "expected"), [(True, ["scheduler-at-wrong-rate"]), (False, [])])
def test_a_schedule_of_passes_that_spends_the_rate_of_two_updates_in_five(per_update, expected):
    model = mlp()
    optimizer = sgd(model)
    scheduler = StepLR(optimizer, 4, 0.56)
    x, y = DATA.tensors
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(20):
            order = torch.randperm(len(x))
            for rows in order.split(8):
                update(model, optimizer, x[rows], y[rows])
                if per_update:
                    scheduler.step()
            if not per_update:
                scheduler.step()
    assert named(seen.findings) == expected
