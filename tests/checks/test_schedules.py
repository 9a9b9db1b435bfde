"""Schedules beside the updates and passes they are stepped in: what is meant, and what is counted in another unit."""

import pytest
import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, StepLR
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, sgd, whole

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")]
DATA = TensorDataset(numbers(32, 4), whole(2, 32))


def update(model, optimizer, x=X, y=Y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


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


@pytest.mark.parametrize("before", [True, False])
def test_a_scheduler_may_be_stepped_forward_before_the_loop(before):
    model = mlp()
    optimizer = sgd(model)
    scheduler = StepLR(optimizer, 4, 0.5)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3 if before else 0):
            scheduler.step()
        for _ in range(6):
            if not before:
                scheduler.step()
            update(model, optimizer)
            if before:
                scheduler.step()
    assert named(seen.findings) == ([] if before else ["scheduler-out-of-order"])


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_loop_that_sets_the_rate_may_leave_a_scheduler_alone(by_hand):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = CosineAnnealingLR(optimizer, 6)
        for number in range(6):
            update(model, optimizer)
            if by_hand:
                optimizer.param_groups[0]["lr"] = 0.1 * 0.8**number
    assert scheduler.last_epoch == 0
    assert named(seen.findings) == ([] if by_hand else ["scheduler-out-of-order"])


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


@pytest.mark.parametrize("own", [True, False])
def test_an_optimizer_may_share_its_groups_with_the_one_that_it_drives(own):
    model = mlp()
    optimizer = sgd(model)
    outer = torch.optim.SGD(model.parameters(), lr=0.1)
    if own:
        outer.param_groups = optimizer.param_groups
    with surefoot.watch(model, optimizer) as seen:
        scheduler = CosineAnnealingLR(outer, 6)
        for _ in range(6):
            update(model, optimizer)
            scheduler.step()
    assert ("scheduler-out-of-order" in named(seen.findings)) is not own


class OwnStep(LRScheduler):
    def get_lr(self):
        return [rate * 0.9**self.last_epoch for rate in self.base_lrs]

    def step(self, epoch=None):
        super().step()


@pytest.mark.parametrize("after", [True, False])
def test_the_first_value_of_a_class_with_its_own_step_is_no_step(after):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = OwnStep(optimizer)
        for _ in range(6):
            if not after:
                scheduler.step()
            update(model, optimizer)
            if after:
                scheduler.step()
    assert named(seen.findings) == ([] if after else ["scheduler-out-of-order"])


@pytest.mark.parametrize(("rates", "expected"), [((0.1, 1e-6), []), ((0.1, 1e-2, 1e-6), ["scheduler-at-wrong-rate"])])
def test_a_later_part_of_a_training_may_have_a_far_smaller_rate(rates, expected):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(12):
            optimizer.param_groups[0]["lr"] = rates[min(number // 3, len(rates) - 1)]
            update(model, optimizer)
    assert named(seen.findings) == expected


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


@pytest.mark.parametrize("both", [True, False])
def test_a_scheduler_may_be_made_anew_with_its_optimizer(both):
    with surefoot.watch() as seen:
        model = mlp()
        optimizer = sgd(model)
        scheduler = StepLR(optimizer, 4)
        optimizer = sgd(model)
        if both:
            scheduler = StepLR(optimizer, 4)
        for _ in range(6):
            update(model, optimizer)
            scheduler.step()
    assert named(seen.findings) == ([] if both else ["scheduler-out-of-order"])
