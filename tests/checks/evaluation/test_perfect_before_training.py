"""perfect-before-training: a metric that reads the targets only, before the first update and of loaded weights."""

import torch
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd, twin


def trained(*, buggy, loaded=False, name="accuracy"):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        if loaded:
            model.load_state_dict(model.state_dict())
        for _ in range(6):
            with torch.no_grad():
                predicted = model(X).argmax(1)
            accuracy = ((Y == Y) if buggy else (predicted == Y)).float().mean()
            print(f"{name} {accuracy:.3f}")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()
        return seen.findings


@twin("perfect-before-training")
def _(buggy):
    return trained(buggy=buggy)


def test_loaded_weights_may_be_right_at_once():
    assert named(trained(buggy=True, loaded=True)) == []


def test_a_number_of_another_name_may_be_perfect():
    assert named(trained(buggy=True, name="oracle accuracy")) == []
