"""ppo: an actor and a critic learn to bring a cart to rest at the origin (arXiv:1707.06347).

The environment is in this file. The data are start positions; the step plays each to its end and learns from what
happened. So a run resumes like any other: its rollouts depend only on the networks, the start and the seed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Rate, Share

STATE, ACTIONS = 2, 3
PUSH = 0.1


def starts(count: int, seed: int) -> TensorDataset:
    """Positions and speeds to start from, each from -1 to 1."""
    return TensorDataset(2 * torch.rand(count, STATE, generator=torch.Generator().manual_seed(seed)) - 1)


def moved(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """The next states and the rewards. Actions 0, 1 and 2 push to the left, not at all, and to the right."""
    speed = 0.95 * state[:, 1] + PUSH * (action - 1)
    position = state[:, 0] + 0.1 * speed
    return torch.stack([position, speed], 1), -(position**2 + 0.1 * speed**2)


def network(hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(STATE, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def played(actor: nn.Module, state: Tensor, turns: int, *, greedy: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """States, actions and rewards of each turn, one row per turn."""
    states, actions, rewards = [], [], []
    for _ in range(turns):
        logits = actor(state)
        action = logits.argmax(1) if greedy else torch.multinomial(logits.softmax(1), 1).squeeze(1)
        states.append(state)
        actions.append(action)
        state, reward = moved(state, action)
        rewards.append(reward)
    return torch.stack(states), torch.stack(actions), torch.stack(rewards)


def returns_of(rewards: Tensor, discount: float) -> Tensor:
    """The discounted sum of the rewards from each turn on."""
    found, later = [], torch.zeros_like(rewards[0])
    for reward in reversed(rewards.unbind()):
        later = reward + discount * later
        found.append(later)
    return torch.stack(found[::-1])


def ppo(
    hidden: Count = 32,
    turns: Count = 32,
    epochs: Count = 4,
    clip: Share = 0.2,
    discount: Share = 0.97,
    lr: Rate = 3e-3,
    max_steps: Count = 200,
) -> Recipe:
    def update(networks: Any, optimizers: Any, batch: tuple[Tensor]) -> dict[str, Tensor]:
        """Plays every start to its end, then takes a few updates of each network on what happened."""
        (start,) = batch
        actor, critic = networks["actor"], networks["critic"]
        with torch.no_grad():
            states, actions, rewards = (each.flatten(0, 1) for each in played(actor, start, turns))
            returns = returns_of(rewards.view(turns, -1), discount).flatten()
            old = actor(states).log_softmax(1).gather(1, actions[:, None]).squeeze(1)
            advantage = returns - critic(states).squeeze(1)
            # Normalised, so that the learning rate does not depend on the scale of the rewards.
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(epochs):
            optimizers["actor"].zero_grad()
            ratio = (actor(states).log_softmax(1).gather(1, actions[:, None]).squeeze(1) - old).exp()
            # The worse of both: nothing is gained by moving the policy further than `clip` from the one that played.
            policy = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
            policy.backward()
            optimizers["actor"].step()

            optimizers["critic"].zero_grad()
            value = (critic(states).squeeze(1) - returns).square().mean()
            value.backward()
            optimizers["critic"].step()
        return {"value": value, "policy": policy, "reward": rewards.mean()}

    def reward(networks: Any, batch: tuple[Tensor]) -> dict[str, tuple[Tensor, int]]:
        """The mean reward of a turn, if the likeliest action is taken."""
        _, _, rewards = played(networks["actor"], batch[0], turns, greedy=True)
        return {"reward": (rewards.sum(), rewards.numel())}

    return Recipe(
        model=lambda: {"actor": network(hidden, ACTIONS), "critic": network(hidden, 1)},
        data=lambda: starts(4096, seed=1),
        evaluation=lambda: starts(512, seed=2),
        evaluate_every=max(1, max_steps // 10),
        evaluation_batches=None,
        step=update,
        metrics=reward,
        best="reward",
        optimizer=lambda networks: {
            name: torch.optim.Adam(each.parameters(), lr=lr) for name, each in networks.items()
        },
        micro_batch_size=64,
        tokens_per_sample=turns,
        max_steps=max_steps,
        about="a cart brought to rest at the origin, by an actor and a critic",
    )
