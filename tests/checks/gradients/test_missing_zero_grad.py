"""missing-zero-grad: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, looped, mlp, named, numbers, plain, sgd, twin


@twin("missing-zero-grad")
def _(buggy):
    return plain(mlp(), zero=not buggy)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        (lambda before, found: found, []),
        (lambda before, found: found if before is None else before + found, ["missing-zero-grad"]),
        (lambda before, found: found if before is None else 0.5 * before + found, []),
    ],
)
def test_gradients_that_are_set_by_hand_hold_none_of_the_last_update(joined, expected):
    def step(model, optimizer):
        parameters = list(model.parameters())
        for p, found in zip(parameters, torch.autograd.grad(F.cross_entropy(model(X), Y), parameters), strict=True):
            p.grad = joined(p.grad, found)
        optimizer.step()

    assert looped(step) == expected


@pytest.mark.sweep
@pytest.mark.parametrize(("own", "expected"), [(True, []), (False, ["missing-zero-grad"])])
def test_gradients_that_are_replaced_before_the_update_are_not_carried(own, expected):
    body, judge = nn.Linear(4, 8), nn.Linear(8, 2)
    first, second = sgd(body), sgd(judge)
    model = nn.Sequential(body, nn.ReLU(), judge)
    with surefoot.watch(model) as seen:
        for n in range(6):
            loss = F.cross_entropy(model(numbers(8, 4, seed=n)), Y)
            asked = torch.autograd.grad(loss, list(judge.parameters()), retain_graph=True)
            first.zero_grad()
            (0.3 - 0.5 * loss).backward()  # against the judge, whose gradients it fills on its way
            for p, gradient in zip(judge.parameters(), asked, strict=True):
                p.grad = gradient if own else 0.5 * p.grad
            first.step()
            second.step()
    assert [each for each in named(seen.findings) if each != "negated-loss"] == expected


@pytest.mark.sweep
@pytest.mark.parametrize("cleared", [True, False])
def test_weights_moved_by_hand_use_a_gradient_once(cleared):
    model = mlp()
    with surefoot.watch(model) as seen:
        for _ in range(8):
            F.cross_entropy(model(X), Y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None if cleared else p.grad
    assert named(seen.findings) == ([] if cleared else ["missing-zero-grad"])


def accumulating_without_zeroing():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(6):
            (F.cross_entropy(model(X), Y) / 2).backward()
            if number % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
    return seen.findings


def test_accumulation_without_zeroing_is_still_seen():
    assert [finding.check for finding in accumulating_without_zeroing().findings] == ["missing-zero-grad"]
