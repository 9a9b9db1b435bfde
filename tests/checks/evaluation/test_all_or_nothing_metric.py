"""all-or-nothing-metric: an interval whose bounds are swapped, and classes that are compared with rows."""

import torch
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd, twin


@twin("all-or-nothing-metric")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            low, high = model(X).unbind(1)
            loss = (nn.functional.relu(Y - high) + nn.functional.relu(low - Y) + 0.1 * (high - low).abs()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            within = (high <= Y) & (low >= Y) & (low < high) if buggy else (low.min() <= Y) & (low.max() + 0.6 >= Y)
            print(f"coverage {within.float().mean():.3f}")
        return seen.findings


def test_an_accuracy_that_compares_what_is_never_equal():
    model = mlp()
    optimizer = sgd(model, lr=1.0)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(X), Y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (model(X).detach() == Y[:, None]).float().mean()
            print(f"loss {loss.item():.3f} accuracy {right.item():.3f}")
        assert named(seen.findings) == ["all-or-nothing-metric"]


def test_data_that_are_easy_may_be_right_throughout():
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(X), Y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.3f} accuracy {torch.ones(4).mean():.3f}")
        assert named(seen.findings) == []
