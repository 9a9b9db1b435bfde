"""bootstrapped-target-with-gradient: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.losses.policies import FOLLOWING, PAY, STATES, acted, learned
from tests.checks.programs import mlp, named, sgd, twin


@twin("bootstrapped-target-with-gradient")
def _(buggy):
    def target(values, reward, done):
        wanted = reward + 0.9 * (1 - done) * values(FOLLOWING).max(1).values
        return wanted if buggy else wanted.detach()

    return learned(target)


@pytest.mark.parametrize("detached", [True, False])
def test_the_value_of_a_critic(detached):
    def loss(chances, action, critic):
        following = critic(FOLLOWING).squeeze(1)
        error = torch.tensor(PAY) + 0.9 * (following.detach() if detached else following) - critic(STATES).squeeze(1)
        return error.pow(2).mean() - (chances.log_prob(action) * error.detach()).mean()

    assert named(acted(loss, head=1)) == ([] if detached else ["bootstrapped-target-with-gradient"])


@pytest.mark.sweep
def test_the_residual_of_an_equation_may_have_gradients_on_both_sides():
    model, force = mlp(classes=1), torch.linspace(0, 1, 24)[:, None]
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(5):
            optimizer.zero_grad()
            F.mse_loss(model(STATES), force + 0.9 * model(FOLLOWING)).backward()
            optimizer.step()
    assert named(seen.findings) == []
