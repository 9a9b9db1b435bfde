"""zero-grad-between-micro-batches: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.gradients.programs import PARTS, accumulated
from tests.checks.programs import X, Y, looped, mlp, named, numbers, sgd, twin

pytestmark = pytest.mark.sweep


@twin("zero-grad-between-micro-batches")
def _(buggy):
    return accumulated(4, inside=buggy)


def test_gradients_that_move_weights_by_hand_before_they_are_cleared_are_used():
    def climbing(climbs):
        model = mlp()
        optimizer = sgd(model)
        with surefoot.watch(model, optimizer) as seen:
            for n in range(12):
                F.cross_entropy(model(numbers(8, 4, seed=n)), Y[:8]).backward()
                if n % 2:
                    optimizer.step()
                elif climbs:
                    with torch.no_grad():
                        for each in model.parameters():
                            each.add_(1e-3 * each.grad)
                optimizer.zero_grad()
        return named(seen.findings)

    assert climbing(climbs=True) == []
    assert climbing(climbs=False) == ["zero-grad-between-micro-batches"]


def in_a_row(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def kept_by_hand(model):
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("take", "found"),
    [(kept_by_hand, False), (in_a_row, False), (lambda model: [p.grad.norm() for p in model.parameters()], True)],
)
def test_gradients_that_a_loop_has_kept_are_not_lost(take, found):
    def step(model, optimizer):
        for x, y in zip(*PARTS, strict=True):
            optimizer.zero_grad()
            (0.5 * F.cross_entropy(model(x), y)).backward()
            take(model)
        optimizer.step()

    assert ("zero-grad-between-micro-batches" in looped(step, steps=6)) is found


def test_gradients_of_an_input_are_asked_for():
    def backward(model, x):
        F.cross_entropy(model(x), Y).backward()

    def step(model, optimizer):
        x = X.clone().requires_grad_()
        backward(model, x)
        worse = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        backward(model, worse)
        optimizer.step()
        optimizer.zero_grad()

    assert "zero-grad-between-micro-batches" not in looped(step, steps=6)
