"""Small worlds and policies that tests of reinforcement learning share."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

import surefoot
from tests.checks.programs import mlp, numbers

STEPS = 24
STATES = numbers(STEPS, 4, seed=1)
PAY = [float(each) for each in numbers(STEPS, seed=2)]
FOLLOWING = numbers(STEPS, 4, seed=3)


def discounted(rewards, discount=0.9, done=()):
    """Returns, summed backwards in time."""
    total, returns = 0.0, []
    for place in reversed(range(len(rewards))):
        total = rewards[place] + discount * total * (not (done and done[place]))
        returns.insert(0, total)
    return returns


def forwards(rewards, discount=0.9):
    """Sums that run the wrong way."""
    total, returns = 0.0, []
    for reward in rewards:
        total = reward + discount * total
        returns.append(total)
    return returns


def normalised(values):
    values = torch.tensor(values)
    return (values - values.mean()) / (values.std() + 1e-8)


def acted(loss, *, updates=5, head=0, rewards=()):
    """What is found in a loop whose loss is made of a policy, its drawn actions, and a critic if there is one.

    The loop holds the rewards in a variable.
    """
    policy, critic = mlp(), nn.Linear(4, 1)
    held = [*policy.parameters(), *(critic.parameters() if head else ())]
    optimizer = torch.optim.SGD(held, lr=0.01)
    torch.manual_seed(1)
    with surefoot.watch() as seen:
        for update in range(updates):
            chances = Categorical(logits=policy(STATES + 0.1 * update))
            action = chances.sample()
            optimizer.zero_grad()
            loss(chances, action, critic).backward()
            optimizer.step()
    return seen.findings


def learned(target, *, updates=5, done=None):
    """What is found in Q-learning with this target of the values."""
    values = mlp()
    optimizer = torch.optim.SGD(values.parameters(), lr=0.01)
    reward = numbers(STEPS, seed=2)
    done = (torch.arange(STEPS) % 4 == 3).float() if done is None else done
    action = (torch.arange(STEPS) % 2)[:, None]
    with surefoot.watch() as seen:
        for update in range(updates):
            chosen = values(STATES + 0.1 * update).gather(1, action).squeeze(1)
            wanted = target(values, reward, done)
            optimizer.zero_grad()
            F.smooth_l1_loss(chosen, wanted).backward()
            optimizer.step()
    return seen.findings
