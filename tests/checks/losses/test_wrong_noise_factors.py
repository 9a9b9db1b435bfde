"""wrong-noise-factors: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import named, numbers, twin

DATA = numbers(64, 6, seed=1)
RATES = torch.linspace(1e-4, 0.08, 50)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None] / 50], 1))


def diffused(mix, *, target="noise"):
    """What is found where samples are mixed with noise like this."""
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with surefoot.watch() as seen:
        bar = torch.cumprod(1 - RATES, 0)
        for _ in range(6):
            t = torch.randint(0, 50, (64,))
            noise = torch.randn_like(DATA)
            noisy = mix(bar, t, DATA, noise)
            optimizer.zero_grad()
            wanted = {"noise": noise, "sample": DATA, "flow": noise - DATA}[target]
            F.mse_loss(model(noisy, t), wanted).backward()
            optimizer.step()
    return seen.findings


@twin("wrong-noise-factors")
def _(buggy):
    def mix(bar, t, x, noise):
        share = bar[t][:, None]
        return share.sqrt() * x + ((1 - share) if buggy else (1 - share).sqrt()) * noise

    return diffused(mix)


def table(bar, t):
    return bar.sqrt()[t].view(-1, 1), (1.0 - bar).sqrt()[t].view(-1, 1)


def of_tables(bar, t, x, noise):
    signal, rest = table(bar, t)
    return signal * x + rest * noise


def swapped(bar, t, x, noise):
    signal, rest = table(bar, t)
    return rest * x + signal * noise


def of_rates(bar, t, x, noise):
    rate = RATES[t][:, None]
    return (1 - rate).sqrt() * x + rate.sqrt() * noise


FORMS = {
    "tables": (of_tables, True),
    "swapped": (swapped, False),
    "rates, not their product": (of_rates, False),
    "no roots": (lambda bar, t, x, noise: bar[t][:, None] * x + (1 - bar[t])[:, None] * noise, False),
    "no root of the sample": (
        lambda bar, t, x, noise: bar[t][:, None] * x + (1 - bar[t]).sqrt()[:, None] * noise, False,
    ),
    "a straight path": (lambda bar, t, x, noise: (1 - t / 50)[:, None] * x + (t / 50)[:, None] * noise, True),
    "noise on top": (lambda bar, t, x, noise: x + (t / 10)[:, None] * noise, True),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_factors_of_sample_and_noise(form):
    mix, sound = FORMS[form]
    assert named(diffused(mix)) == ([] if sound else ["wrong-noise-factors"])


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["sample", "flow"])
def test_other_targets_are_not_judged(target):
    assert named(diffused(FORMS["rates, not their product"][0], target=target)) == []
