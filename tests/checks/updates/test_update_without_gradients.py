"""update-without-gradients: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd, twin

pytestmark = pytest.mark.sweep


@twin("update-without-gradients")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if buggy:
                optimizer.zero_grad()
            optimizer.step()
    return seen.findings


def test_a_step_may_have_nothing_to_learn_from():
    model = mlp()
    optimizer = sgd(model)
    chosen = torch.stack([Y >= 0, Y == 0, Y < 0])
    with surefoot.watch(model, optimizer) as seen:
        for rows in chosen:
            optimizer.zero_grad()
            F.cross_entropy(model(X[rows]), Y[rows], reduction="sum").backward()
            optimizer.step()
    assert named(seen.findings) == []


@pytest.mark.parametrize("begins", [True, False])
def test_an_optimizer_may_wait_for_its_loss(begins):
    model, other = mlp(), mlp()
    first, second = sgd(model), sgd(other)
    with surefoot.watch() as seen:
        for step in range(16):
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(model(X + step), Y).backward()
            loss = F.cross_entropy(other(X + step), Y)
            if begins and step > 13:
                loss.backward()
            first.step()
            second.step()
    assert ("update-without-gradients" in named(seen.findings)) is not begins
