"""metric-worse-as-loss-falls: an accuracy that counts the least likely class."""

import torch
from torch import nn

import surefoot
from tests.checks.programs import mlp, named, numbers, sgd, twin

X = numbers(64, 4)
Y = (X.sum(1) > 0).long()


def trained(*, buggy, phase="val"):
    model = mlp()
    optimizer = sgd(model, lr=0.5)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(12):
            loss = nn.functional.cross_entropy(model(X), Y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                logits = model(X)
            right = ((logits.argmin(1) if buggy else logits.argmax(1)) == Y).float().mean()
            print(f"{phase} loss {nn.functional.cross_entropy(logits, Y):.4f} val acc {right:.4f}")
        return seen.findings


@twin("metric-worse-as-loss-falls")
def _(buggy):
    return trained(buggy=buggy)


def test_an_overfitted_model_gets_worse_on_other_data():
    assert named(trained(buggy=True, phase="train")) == []
