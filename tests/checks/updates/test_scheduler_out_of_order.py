"""scheduler-out-of-order: the buggy and the fixed program, variants, and what looks like it and is fine."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LRScheduler, StepLR

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd, twin
from tests.checks.updates.programs import update


@twin("scheduler-out-of-order")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    scheduler = CosineAnnealingLR(optimizer, T_max=100)
    with surefoot.watch(model, optimizer) as seen, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if buggy:
                scheduler.step()
            optimizer.step()
            if not buggy:
                scheduler.step()
    return seen.findings


@pytest.mark.sweep
@pytest.mark.parametrize("given", [True, False])
def test_a_schedule_of_an_optimizer_that_another_one_replaces_is_named(given):
    model = mlp()
    first = sgd(model)
    with surefoot.watch(model) as seen:
        schedule = torch.optim.lr_scheduler.StepLR(first, 2)
        optimizer = first if given else sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if given:
                schedule.step()
    assert named(seen.findings) == ([] if given else ["scheduler-out-of-order"])


@pytest.mark.sweep
@pytest.mark.parametrize("follows", [True, False])
def test_a_scheduler_goes_with_the_optimizer_that_takes_over(follows):
    model = mlp()
    optimizer = sgd(model)
    scheduler = ExponentialLR(optimizer, 0.9)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(8):
            if number == 3:
                optimizer = sgd(model)
                scheduler = ExponentialLR(optimizer, 0.9) if follows else scheduler
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            scheduler.step()
    assert named(seen.findings) == ([] if follows else ["scheduler-out-of-order"])


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
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


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
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


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
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


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
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


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.sweep
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


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("stepped", [True, False])
def test_a_scheduler_that_is_never_stepped_is_seen(stepped, chained):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        if chained:
            slow = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50)
            scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [scheduler, slow], milestones=[100])
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if stepped:
                scheduler.step()
    assert [each.check for each in seen.findings.findings] == ([] if stepped else ["scheduler-out-of-order"])
