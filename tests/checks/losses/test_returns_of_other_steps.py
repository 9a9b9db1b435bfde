"""returns-of-other-steps: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch

from tests.checks.losses.policies import PAY, STATES, STEPS, acted, discounted, forwards, normalised
from tests.checks.programs import named, twin


@twin("returns-of-other-steps")
def _(buggy):
    def loss(chances, action, critic):
        rewards = list(PAY)
        returns = torch.tensor(forwards(rewards) if buggy else discounted(rewards))
        return -(chances.log_prob(action) * returns).mean()

    return acted(loss)


SUMS = {
    "backwards": (discounted, []),
    "forwards": (forwards, ["returns-of-other-steps"]),
    "backwards without a discount": (lambda pay: discounted(pay, 1.0), []),
    "forwards without a discount": (lambda pay: forwards(pay, 1.0), ["returns-of-other-steps"]),
    "rewards alone": (list, []),
    "the total": (lambda pay: [sum(pay)] * len(pay), []),
}


@pytest.mark.sweep
@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("form", [torch.tensor, normalised])
def test_sums_of_rewards(sums, even, form):
    def loss(chances, action, critic):
        rewards = [1.0] * STEPS if even else list(PAY)
        return -(chances.log_prob(action) * form(SUMS[sums][0](rewards))).mean()

    if form is normalised and (sums == "the total" or (even and sums == "rewards alone")):
        return
    assert named(acted(loss)) == SUMS[sums][1]


@pytest.mark.parametrize("way", [discounted, forwards])
def test_returns_that_are_used_step_by_step(way):
    def loss(chances, action, critic):
        logs, returns = chances.log_prob(action), way(PAY)
        return torch.stack([-logs[place] * returns[place] for place in range(STEPS)]).sum()

    assert named(acted(loss, rewards=list(PAY))) == ([] if way is discounted else ["returns-of-other-steps"])


@pytest.mark.parametrize("across", [True, False])
def test_returns_end_with_their_episode(across):
    def loss(chances, action, critic):
        rewards, done = list(PAY), [place % 8 == 7 for place in range(STEPS)]
        ends = [float(each) for each in done]
        returns = torch.tensor(discounted(rewards, 0.9, () if across else ends))
        return -(chances.log_prob(action) * returns).mean()

    assert named(acted(loss)) == (["returns-of-other-steps"] if across else [])


@pytest.mark.sweep
def test_a_baseline_is_not_judged():
    def loss(chances, action, critic):
        rewards = list(PAY)
        advantage = torch.tensor(forwards(rewards)) - critic(STATES).squeeze(1).detach()
        return -(chances.log_prob(action) * advantage).mean()

    assert named(acted(loss)) == []
