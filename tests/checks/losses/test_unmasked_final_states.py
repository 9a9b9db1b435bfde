"""unmasked-final-states: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch

from tests.checks.losses.policies import FOLLOWING, STEPS, learned
from tests.checks.programs import named, twin


@twin("unmasked-final-states")
def _(buggy):
    def target(values, reward, done):
        with torch.no_grad():
            following = 0.9 * values(FOLLOWING).max(1).values
            return reward + (following if buggy else following * (1 - done))

    return learned(target)


@pytest.mark.parametrize(("mask", "expected"), [
    (lambda done: done, ["unmasked-final-states"]),
    (lambda done: 1 - done, []),
    (lambda done: ~done.bool(), []),
    (lambda done: 0.5 * (1 - done), []),
])  # fmt: skip
def test_masks_of_the_next_value(mask, expected):
    def target(values, reward, done):
        with torch.no_grad():
            return reward + 0.9 * values(FOLLOWING).max(1).values * mask(done)

    assert named(learned(target)) == expected


@pytest.mark.sweep
def test_a_target_without_final_states_is_not_judged():
    def target(values, reward, done):
        return (reward + 0.9 * values(FOLLOWING).max(1).values).detach()

    assert named(learned(target, done=torch.zeros(STEPS))) == []


@pytest.mark.sweep
def test_rewards_may_be_clipped():
    def target(values, reward, done):
        with torch.no_grad():
            return reward.clamp(-1, 1) + 0.9 * (1 - done) * values(FOLLOWING).max(1).values

    assert named(learned(target)) == []
