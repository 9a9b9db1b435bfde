"""wrong-gaussian-likelihood: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal

import surefoot
from tests.checks.programs import mlp, named, numbers, sgd, twin

DATA = numbers(32, 4, seed=1)
WANTED = DATA[:, :2] * 0.7 + 0.2 * numbers(32, 2, seed=2)


def predicted(loss):
    """What is found in a model that predicts a mean and a spread."""
    model = mlp(classes=4)
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(5):
            optimizer.zero_grad()
            mean, log = model(DATA + 0.1 * step).chunk(2, 1)
            loss(mean, log).backward()
            optimizer.step()
    return seen.findings


@twin("wrong-gaussian-likelihood")
def _(buggy):
    if buggy:
        return predicted(lambda mean, log: ((WANTED - mean).pow(2) / log.exp()).mean())
    return predicted(lambda mean, log: (log + (WANTED - mean).pow(2) / log.exp()).mean())


def by_deviation(mean, deviation):
    return (0.5 * ((WANTED - mean) / deviation) ** 2 + deviation.log()).mean()


def by_variance(mean, variance, sign=1.0):
    return 0.5 * ((WANTED - mean) ** 2 / variance + sign * variance.log()).mean()


SOUND = {
    "by the precision": lambda mean, log: 0.5 * ((WANTED - mean) ** 2 * (-log).exp() + log).mean(),
    "logarithm of the precision": lambda mean, log: (0.5 * (WANTED - mean) ** 2 * log.exp() - 0.5 * log).sum(1).mean(),
    "by the deviation": lambda mean, log: (0.5 * ((WANTED - mean) / log.exp()) ** 2 + log).mean(),
    "deviation by softplus": lambda mean, log: by_deviation(mean, F.softplus(log)),
    "variance by softplus": lambda mean, log: by_variance(mean, F.softplus(log) + 1e-3),
    "of a distribution": lambda mean, log: -Normal(mean, log.exp()).log_prob(WANTED).mean(),
    "of torch": lambda mean, log: F.gaussian_nll_loss(mean, WANTED, log.exp()),
    "errors and logarithms apart": lambda mean, log: (
        (F.mse_loss(mean, WANTED, reduction="none") * (-log).exp()).mean() + log.mean()
    ),
    "kept small in another way": lambda mean, log: ((WANTED - mean) ** 2 * (-log).exp()).mean() + log.square().mean(),
    "a Laplace distribution": lambda mean, log: ((WANTED - mean).abs() * (-log).exp() + log).mean(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("form", SOUND)
def test_forms_of_the_likelihood(form):
    assert named(predicted(SOUND[form])) == []


WRONG = {
    "nothing is added": lambda mean, log: ((WANTED - mean) ** 2 * (-log).exp()).mean(),
    "the wrong sign": lambda mean, log: (0.5 * (WANTED - mean) ** 2 / log.exp() - 0.5 * log).mean(),
    "deviation and variance": lambda mean, log: (0.5 * (WANTED - mean) ** 2 / log.exp() + log).mean(),
    "the wrong sign of a variance": lambda mean, log: by_variance(mean, F.softplus(log) + 1e-3, -1.0),
    "twice the deviation": lambda mean, log: (((WANTED - mean) / log.exp()) ** 2 + log).mean(),
}


@pytest.mark.parametrize("form", WRONG)
def test_logarithms_that_do_not_fit(form):
    assert named(predicted(WRONG[form])) == ["wrong-gaussian-likelihood"]


@pytest.mark.sweep
def test_losses_of_two_tasks_may_be_weighed_by_learned_numbers():
    model = mlp(classes=4)
    logs = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([*model.parameters(), logs], lr=0.01)
    with surefoot.watch() as seen:
        for step in range(5):
            optimizer.zero_grad()
            one, other = model(DATA + 0.1 * step).chunk(2, 1)
            errors = torch.stack([F.mse_loss(one, WANTED), F.mse_loss(other, -WANTED)])
            (errors * (-logs).exp() + logs).sum().backward()
            optimizer.step()
    assert named(seen.findings) == []
