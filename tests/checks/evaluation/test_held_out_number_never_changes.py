"""held-out-number-never-changes: a copy is evaluated that was made before the training."""

import copy

import torch
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, numbers, sgd, twin

HELD = numbers(8, 4, seed=1)


def trained(*, buggy, said="val"):
    model = mlp()
    optimizer, first = sgd(model, lr=0.5), copy.deepcopy(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            loss = nn.functional.cross_entropy(model(X), Y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                held = nn.functional.cross_entropy((first if buggy else model)(HELD), Y)
            print(f"loss {loss.item():.4f} {said} loss {held:.4f}")
        return seen.findings


@twin("held-out-number-never-changes")
def _(buggy):
    return trained(buggy=buggy)


def test_a_baseline_may_stay():
    assert named(trained(buggy=True, said="baseline")) == []
