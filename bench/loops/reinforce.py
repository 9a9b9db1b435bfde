"""REINFORCE on a walk: many forwards of one state each to one update."""

import sys

import torch
from torch import nn
from torch.distributions import Categorical

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(2)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def episode():
    """A cart that should stay near the middle."""
    state, probabilities, rewards = torch.randn(4) * 0.1, [], []
    for _ in range(40):
        choice = Categorical(logits=policy(state))
        action = choice.sample()
        probabilities.append(choice.log_prob(action))
        push = 0.1 if action.item() else -0.1
        state = torch.stack([state[0] + 0.1 * state[1], state[1] + push, state[2] * 0.9, state[0].sign()])
        rewards.append(1.0 if state[0].abs() < 1 else 0.0)
    return probabilities, rewards


for update in range(updates):
    probabilities, rewards = episode()
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.95 * total
        returns.insert(0, total)
    weights = torch.tensor(returns)
    weights = (weights - weights.mean()) / (weights.std() + 1e-6)
    loss = -(torch.stack(probabilities) * weights).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 10 == 0:
        print(update, loss.item(), sum(rewards))
