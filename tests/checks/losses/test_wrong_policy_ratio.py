"""wrong-policy-ratio: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import surefoot
from tests.checks.losses.policies import STATES, STEPS
from tests.checks.programs import mlp, named, numbers, sgd, twin

ADVANTAGE = numbers(STEPS, seed=5)


def proximal(objective, *, old_of=lambda old: old, layers=()):
    """What is found in several epochs on the actions of one policy."""
    policy = mlp(*layers)
    optimizer = sgd(policy, lr=0.05)
    torch.manual_seed(1)
    with surefoot.watch() as seen:
        for _ in range(2):
            with torch.no_grad():
                chances = Categorical(logits=policy(STATES))
                action = chances.sample()
                old = old_of(chances.log_prob(action))
            for _ in range(4):
                ratio = (Categorical(logits=policy(STATES)).log_prob(action) - old).exp()
                optimizer.zero_grad()
                objective(ratio).mean().backward()
                optimizer.step()
    return seen.findings


def clipped(ratio):
    return -torch.min(ratio * ADVANTAGE, ratio.clamp(0.8, 1.2) * ADVANTAGE)


@twin("wrong-policy-ratio")
def _(buggy):
    kept = torch.max if buggy else torch.min
    return proximal(lambda ratio: -kept(ratio * ADVANTAGE, torch.clamp(ratio, 0.8, 1.2) * ADVANTAGE))


@pytest.mark.sweep
def test_the_maximum_of_two_losses_is_the_minimum_of_two_objectives():
    found = proximal(lambda ratio: torch.max(-ADVANTAGE * ratio, -ADVANTAGE * torch.clamp(ratio, 0.8, 1.2)))
    assert named(found) == []


@pytest.mark.sweep
@pytest.mark.parametrize("shifted", [True, False])
def test_probabilities_of_other_actions(shifted):
    found = proximal(clipped, old_of=lambda old: old.roll(1) - 0.3 if shifted else old)
    assert named(found) == (["wrong-policy-ratio"] if shifted else [])


@pytest.mark.sweep
def test_dropout_may_move_the_first_ratio():
    assert "wrong-policy-ratio" not in named(proximal(clipped, layers=(nn.Dropout(0.5),)))
