"""wrong-gaussian-divergence: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import surefoot
from tests.checks.programs import mlp, named, numbers, sgd, twin

DATA = numbers(32, 4, seed=1)


def variational(divergence, *, weight=1.0):
    """An autoencoder whose latent has this divergence."""
    encoder, decoder = mlp(classes=6), nn.Linear(3, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    with surefoot.watch() as seen:
        for step in range(5):
            optimizer.zero_grad()
            mean, log = encoder(DATA + 0.1 * step).chunk(2, 1)
            latent = mean + (0.5 * log).exp() * torch.randn_like(mean)
            error = F.mse_loss(decoder(latent), DATA, reduction="sum") / len(DATA)
            (error + weight * divergence(mean, log)).backward()
            optimizer.step()
    return seen.findings


def plain(mean, log):
    return -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()


@twin("wrong-gaussian-divergence")
def _(buggy):
    if buggy:
        return variational(lambda mean, log: -0.5 * (1 + log - mean.pow(2) - (0.5 * log).exp()).sum(1).mean())
    return variational(plain)


SOUND = {
    "all at once": lambda mean, log: -0.5 * torch.sum(1 + log - mean**2 - log.exp()),
    "a mean of all": lambda mean, log: -0.5 * torch.mean(1 + log - mean.square() - torch.exp(log)),
    "mean times mean": lambda mean, log: 0.5 * (mean * mean + log.exp() - log - 1).sum(1).mean(0),
    "by the deviation": lambda mean, log: (
        0.5 * (mean**2 + (0.5 * log).exp() ** 2) - torch.log((0.5 * log).exp()) - 0.5
    ).sum(),
    "each part alone": lambda mean, log: 0.5 * (mean.pow(2).sum() + log.exp().sum() - log.sum()) / len(mean),
    "of logarithms of deviations": lambda mean, log: (0.5 * ((2 * log).exp() + mean**2) - log).sum(-1).mean(),
    "another prior": lambda mean, log: 0.5 * (log.exp() / 4 + mean**2 / 4 - log).sum(1).mean(),
    "another mean": lambda mean, log: 0.5 * (log.exp() + (mean - 1) ** 2 - log).sum(1).mean(),
    "free bits": lambda mean, log: (0.5 * (log.exp() + mean**2 - log - 1)).mean(0).clamp(min=0.1).sum(),
    "a capacity": lambda mean, log: (plain(mean, log) - 2.0).abs(),
    "the variance alone": lambda mean, log: (log.exp() - log).sum(1).mean(),
    "a penalty": lambda mean, log: 0.1 * mean.pow(2).mean() + 0.2 * log.pow(2).mean(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("form", SOUND)
@pytest.mark.parametrize("weight", [1.0, 4.0, 1e-4])
def test_forms_of_the_divergence(form, weight):
    assert named(variational(SOUND[form], weight=weight)) == []


def by_deviation(mean, deviation, sign=-1.0):
    return (0.5 * (mean**2 + deviation**2) + sign * deviation.log() - 0.5).sum(1).mean()


WRONG = {
    "raised": lambda mean, log: 0.5 * (1 + log - mean**2 - log.exp()).sum(1).mean(),
    "mean is added": lambda mean, log: -0.5 * (1 + log + mean**2 - log.exp()).sum(1).mean(),
    "logarithm is subtracted": lambda mean, log: -0.5 * (1 - log - mean**2 - log.exp()).sum(1).mean(),
    "deviation for variance": lambda mean, log: -0.5 * (1 + log - mean**2 - (0.5 * log).exp()).sum(1).mean(),
    "half of one part": lambda mean, log: (0.5 * (mean**2 + log.exp()) - log).sum(1).mean(),
    "half of the mean": lambda mean, log: (0.5 * mean**2 + log.exp() - log).sum(1).mean(),
    "mean not squared": lambda mean, log: -0.5 * (1 + log - mean - log.exp()).sum(1).mean(),
    "over the samples": lambda mean, log: -0.5 * (1 + log - mean**2 - log.exp()).sum(0).mean(),
    "log of deviations": lambda mean, log: by_deviation(mean, F.softplus(log), 1.0),
}


@pytest.mark.parametrize("form", WRONG)
def test_parts_that_do_not_fit(form):
    assert named(variational(WRONG[form])) == ["wrong-gaussian-divergence"]


@pytest.mark.sweep
def test_a_deviation_that_is_positive_by_softplus():
    assert named(variational(lambda mean, raw: by_deviation(mean, F.softplus(raw) + 1e-6))) == []


@pytest.mark.sweep
def test_a_divergence_of_torch_itself():
    def divergence(mean, log):
        own = torch.distributions.Normal(mean, (0.5 * log).exp())
        return torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, 1.0)).sum(1).mean()

    assert named(variational(divergence)) == []


def test_a_difference_of_an_exponential_and_its_exponent_in_another_loss():
    model = mlp(classes=1)
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(5):
            optimizer.zero_grad()
            rate = model(DATA + step)
            (rate.exp() - rate * DATA[:, :1].abs()).mean().backward()
            optimizer.step()
    assert named(seen.findings) == []


def test_a_loss_inside_a_checkpoint_is_not_read():
    def packed(mean, log):
        return checkpoint(WRONG["raised"], mean, log, use_reentrant=False)

    found = variational(packed)
    assert not found.failure
    assert named(found) == []
