"""impossible-number: log-probabilities over the wrong dimension, and a likelihood without its logarithm."""

import torch

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd, twin


def trained(name, loss_of):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            loss = loss_of(model(X))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{name}: {loss.item():.4f}")
        return seen.findings


def likelihood(logits, power):
    return -(logits.softmax(1)[torch.arange(len(Y)), Y].log() if power == 1 else logits.softmax(1)[:, 0]).mean()


@twin("impossible-number")
def _(buggy):
    return trained("cross entropy", lambda logits: likelihood(logits, 0 if buggy else 1))


def test_a_likelihood_of_continuous_values_may_be_negative():
    assert named(trained("nll", lambda logits: likelihood(logits, 0))) == []
