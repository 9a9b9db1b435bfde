"""Advantage actor-critic on a small grid: eight worlds, ten moves to an update."""

import sys

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(27)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(2, 48), nn.Linear(48, 4), nn.Linear(48, 1)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return Categorical(logits=self.actor(h)), self.critic(h)[:, 0]


moves = torch.tensor([[0.1, 0.0], [-0.1, 0.0], [0.0, 0.1], [0.0, -0.1]])
model = Both()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
place = torch.rand(8, 2) * 2 - 1
for update in range(updates):
    scores, values, rewards, spread = [], [], [], []
    for _ in range(10):
        choice, value = model(place)
        action = choice.sample()
        place = (place + moves[action]).clamp(-1, 1)
        scores.append(choice.log_prob(action))
        values.append(value)
        spread.append(choice.entropy())
        rewards.append(-place.norm(dim=1))
    with torch.no_grad():
        total = model(place)[1]
    returns = []
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        returns.insert(0, total)
    returns, values = torch.stack(returns), torch.stack(values)
    advantage = (returns - values).detach()
    loss = -(torch.stack(scores) * advantage).mean() + 0.5 * F.mse_loss(values, returns)
    loss = loss - 0.01 * torch.stack(spread).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    if update % 10 == 0:
        print(update, loss.item(), torch.stack(rewards).mean().item())
