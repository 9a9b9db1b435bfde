"""unopposed-generator: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import named, numbers, twin

DATA = numbers(96, 4, seed=1) * 0.5 + 1


def game(judged, made, *, steps=6, detached=True):
    """What is found between a generator and a discriminator with these losses."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
    judge = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 1))
    first, second = torch.optim.Adam(judge.parameters(), 1e-3), torch.optim.Adam(maker.parameters(), 1e-3)
    with surefoot.watch() as seen:
        for step in range(steps):
            fake = maker(torch.randn(16, 3))
            first.zero_grad()
            judged(judge(DATA[16 * step :][:16]), judge(fake.detach() if detached else fake)).backward()
            first.step()
            second.zero_grad()
            made(judge(maker(torch.randn(16, 3)))).backward()
            second.step()
    return seen.findings


def says(answer):
    return lambda logits: F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, answer))


def apart(data, fake):
    return says(1.0)(data) + says(0.0)(fake)


@twin("unopposed-generator")
def _(buggy):
    return game(apart, says(0.0 if buggy else 1.0))


GAMES = {
    "both labels swapped": (lambda data, fake: says(0.0)(data) + says(1.0)(fake), says(0.0), True),
    "smooth labels": (lambda data, fake: says(0.9)(data) + says(0.0)(fake), says(1.0), True),
    "a critic": (lambda data, fake: fake.mean() - data.mean(), lambda fake: -fake.mean(), True),
    "a critic and its friend": (lambda data, fake: fake.mean() - data.mean(), lambda fake: fake.mean(), False),
    "margins": (
        lambda data, fake: F.relu(1 - data).mean() + F.relu(1 + fake).mean(), lambda fake: -fake.mean(), True,
    ),
    "the saturating loss": (apart, lambda fake: -says(0.0)(fake), True),
    "one label for both": (lambda data, fake: says(1.0)(data) + says(1.0)(fake), says(1.0), False),
}  # fmt: skip


@pytest.mark.parametrize("name", GAMES)
def test_games(name):
    judged, made, sound = GAMES[name]
    found = named(game(judged, made))
    assert ("unopposed-generator" in found) is not sound


@pytest.mark.sweep
def test_an_actor_and_the_critic_of_its_actions():
    actor, critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), nn.Linear(6, 1)
    of_actor, of_critic = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
    with surefoot.watch() as seen:
        for step in range(6):
            state, action = numbers(32, 4, seed=step), numbers(32, 2, seed=step + 50)
            of_critic.zero_grad()
            F.mse_loss(critic(torch.cat([state, action], 1)), torch.full((32, 1), 9.0) + state[:, :1]).backward()
            of_critic.step()
            of_actor.zero_grad()
            (-critic(torch.cat([state, actor(state)], 1))).mean().backward()
            of_actor.step()
    assert "unopposed-generator" not in named(seen.findings)
