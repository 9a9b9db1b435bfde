"""advantage-with-gradient: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

from tests.checks.losses.policies import PAY, STATES, acted, discounted
from tests.checks.programs import named, twin

RETURNS = torch.tensor(discounted(PAY))


@twin("advantage-with-gradient")
def _(buggy):
    def loss(chances, action, critic):
        value = critic(STATES).squeeze(1)
        advantage = RETURNS - (value if buggy else value.detach())
        return -(chances.log_prob(action) * advantage).mean() + 0.5 * F.mse_loss(value, RETURNS)

    return acted(loss, head=1)


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("form", ["normalised", "step by step"])
def test_advantages_of_other_forms(detached, form):
    def loss(chances, action, critic):
        value = critic(STATES).squeeze(1)
        advantage = RETURNS - (value.detach() if detached else value)
        if form == "normalised":
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            return -(advantage * chances.log_prob(action)).mean() + F.mse_loss(value, RETURNS)
        logs = chances.log_prob(action)
        losses = [-logs[place] * advantage[place] for place in range(len(logs))]
        return torch.stack(losses).sum() + F.mse_loss(value, RETURNS)

    assert named(acted(loss, head=1)) == ([] if detached else ["advantage-with-gradient"])


@pytest.mark.sweep
def test_a_gate_may_weigh_likelihoods():
    def loss(chances, action, critic):
        return -(chances.log_prob(action) * critic(STATES).squeeze(1).sigmoid()).mean()

    assert "advantage-with-gradient" not in named(acted(loss, head=1))
