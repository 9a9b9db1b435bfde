"""REINFORCE: log-probabilities of actions weighted by returns; the loss may be negative."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(24)
policy = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
baseline = 0.0
for _ in range(15):
    state = torch.randn(16, 4)
    chances = Categorical(logits=policy(state))
    action = chances.sample()
    reward = (action == state[:, :3].argmax(1)).float()
    loss = -(chances.log_prob(action) * (reward - baseline)).mean() - 0.01 * chances.entropy().mean()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(baseline)
