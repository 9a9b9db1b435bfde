"""unrestored-scheduler: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, found_by, mlp, named, twin
from tests.checks.saved_state.programs import adam, by_hand, net, normed_net, resumed, step, through_a_file, train

pytestmark = pytest.mark.sweep


@twin("unrestored-scheduler")
def _(buggy):
    return resumed(optimizer_back=True, scheduler_back=not buggy)


def test_an_optimizer_may_be_put_back_and_then_be_given_a_schedule():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        sweep = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.2)
        for _ in range(4):
            train(model, optimizer, steps=1)
            sweep.step()
        model.load_state_dict(before[0])
        optimizer.load_state_dict(before[1])
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=8)
        for _ in range(8):
            train(model, optimizer, steps=1)
            cycle.step()
    assert found_by(seen) == []


@pytest.mark.parametrize(("by_hand", "expected"), [(True, []), (False, ["unrestored-scheduler"])])
def test_a_schedule_may_be_told_by_hand_how_far_it_is(by_hand, expected):
    model = mlp()

    def begin():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)

    def go_on(optimizer, schedule):
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            schedule.step()

    with surefoot.watch(model) as seen:
        optimizer, schedule = begin()
        go_on(optimizer, schedule)
        file = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, file)
        file.seek(0)
        kept = torch.load(file)
        optimizer, schedule = begin()
        optimizer.load_state_dict(kept["optimizer"])
        if by_hand:
            schedule.last_epoch = kept["schedule"]["last_epoch"]
        go_on(optimizer, schedule)
    assert named(seen.findings) == expected


@pytest.mark.parametrize(("first", "expected"), [(4, []), (0, ["unrestored-scheduler"])])
def test_a_schedule_by_hand_goes_on_where_its_optimizer_does(first, expected):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        by_hand(model, optimizer, 0)
        kept = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        model = net()
        optimizer = adam(model)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        by_hand(model, optimizer, first)
    assert found_by(seen) == expected


def scheduled(model):
    optimizer = adam(model)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))


def gone_on(restore) -> list[str]:
    """What is said of a run whose state is kept in memory, with a schedule that has begun."""
    model = normed_net()
    with surefoot.watch(model) as seen:
        optimizer, schedule = scheduled(model)
        for _ in range(3):
            step(model, optimizer)
            schedule.step()
        kept = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
        optimizer, schedule = scheduled(model)
        restore(optimizer, schedule, *kept)
        for _ in range(3):
            step(model, optimizer)
            schedule.step()
    return [each.check for each in seen.findings.findings]


def restore_all(optimizer, schedule, its_state, state_of_schedule):
    optimizer.load_state_dict(its_state)
    schedule.load_state_dict(state_of_schedule)


def halve(optimizer, schedule, *kept):
    restore_all(optimizer, schedule, *kept)
    for group in optimizer.param_groups:
        group["lr"] /= 2


def restore_optimizer(optimizer, schedule, its_state, _):
    optimizer.load_state_dict(its_state)


def set_back(optimizer, schedule, *kept):
    restore_all(optimizer, schedule, *kept)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2


@pytest.mark.parametrize(
    ("restore", "expected"),
    [
        (restore_all, []),
        (halve, []),
        (restore_optimizer, ["unrestored-scheduler"]),
        (set_back, ["unrestored-scheduler"]),
    ],
)
def test_a_schedule_goes_on_where_its_optimizer_does(restore, expected):
    assert gone_on(restore) == expected
