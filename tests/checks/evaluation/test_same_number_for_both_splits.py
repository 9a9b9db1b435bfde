"""same-number-for-both-splits: both numbers are computed from the training data."""

import torch
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, numbers, sgd, twin

HELD = numbers(8, 4, seed=1)


def trained(*, buggy, said="val"):
    model = mlp()
    optimizer = sgd(model)

    def measured(x):
        with torch.no_grad():
            return nn.functional.cross_entropy(model(x), Y)

    with surefoot.watch(model, optimizer) as seen:
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()
            print(f"train loss {measured(X):.4f} {said} loss {measured(X if buggy else HELD):.4f}")
        return seen.findings


@twin("same-number-for-both-splits")
def _(buggy):
    return trained(buggy=buggy)


def test_numbers_of_one_split_may_be_equal():
    assert named(trained(buggy=True, said="last")) == []
