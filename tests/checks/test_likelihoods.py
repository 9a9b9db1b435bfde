"""Likelihoods that a loop computes itself: of what was given they rise, of what was drawn by its reward."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical, Normal

import surefoot
from tests.checks.test_variants import named
from tests.checks.twins import mlp, numbers, sgd

pytestmark = pytest.mark.sweep

X = numbers(32, 4, seed=2)
Y = X[:, 0] + 0.3 * numbers(32, seed=3) + 0.5


def trained(loss):
    model = mlp()
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch() as seen:
        for step in range(6):
            optimizer.zero_grad()
            loss(model(X + 0.1 * step)).backward()
            optimizer.step()
    return "negated-loss" in named(seen.findings)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_pair_is_ranked_one_way(sign):
    assert trained(lambda out: sign * F.logsigmoid(out[:, 0] - out[:, 1]).mean()) is (sign > 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_logarithm_of_a_sigmoid_is_one_too(sign):
    assert trained(lambda out: sign * torch.log(torch.sigmoid(out[:, 0] - out[:, 1]) + 1e-8).sum()) is (sign > 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_was_given_becomes_likelier(sign):
    assert trained(lambda out: sign * Normal(out[:, 0], out[:, 1].exp()).log_prob(Y).mean()) is (sign > 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_mean_with_a_spread_of_its_own_comes_nearer(sign):
    def loss(out):
        return -sign * (0.5 * out[:, 1] + 0.5 * (Y - out[:, 0]).square() / out[:, 1].exp()).mean()

    assert trained(loss) is (sign > 0)


def test_entropy_may_be_asked_for():
    def loss(out):
        policy = Normal(out[:, 0], out[:, 1].exp())
        drawn = policy.rsample()
        return (policy.log_prob(drawn) + (drawn - Y).square()).mean()

    assert not trained(loss)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_had_a_reward_becomes_likelier(sign):
    def loss(out):
        policy = Categorical(logits=out)
        drawn = policy.sample()
        rewards = torch.where(drawn == 1, Y, -Y)
        return sign * (policy.log_prob(drawn) * (rewards - rewards.mean())).mean()

    assert trained(loss) is (sign > 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_ratio_of_policies_rises_by_its_advantage(sign):
    def loss(out):
        chances = out.log_softmax(-1).gather(1, (Y > 0).long()[:, None]).squeeze(1)
        advantage = Y - Y.mean()
        ratio = (chances - chances.detach()).exp()
        return sign * torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()

    assert trained(loss) is (sign > 0)


def test_what_had_a_cost_becomes_less_likely():
    def loss(out):
        policy = Categorical(logits=out)
        drawn = policy.sample()
        cost = torch.where(drawn == 1, Y, -Y)
        return (policy.log_prob(drawn) * (cost - cost.mean())).mean()

    assert not trained(loss)


def test_a_ratio_may_be_multiplied_by_the_negative_of_an_advantage():
    def loss(out):
        chances = out.log_softmax(-1).gather(1, (Y > 0).long()[:, None]).squeeze(1)
        advantage = Y - Y.mean()
        ratio = (chances - chances.detach()).exp()
        return torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()

    assert not trained(loss)


def test_a_cross_entropy_weighed_by_advantages_is_no_likelihood():
    def loss(out):
        advantage = Y - Y.mean()
        return (F.cross_entropy(out, (Y > 0).long(), reduction="none") * advantage).mean()

    assert not trained(loss)


def test_a_score_is_the_negative_of_the_noise():
    noise = numbers(32, 2, seed=5)
    scales = torch.linspace(0.5, 1.5, 32)[:, None]
    assert not trained(lambda out: (out + noise / scales).square().mean())
