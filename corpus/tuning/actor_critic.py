"""Advantage actor-critic: one body, two heads, detached advantages; rollouts without gradients in training mode."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(25)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 32)
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, state):
        h = torch.tanh(self.body(state))
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


model = ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
for _ in range(10):
    states, actions, rewards = [], [], []
    with torch.no_grad():
        for _ in range(4):
            state = torch.randn(8, 5)
            action = model(state)[0].sample()
            states.append(state)
            actions.append(action)
            rewards.append((action == (state[:, 0] > 0)).float())
    state, action, reward = torch.cat(states), torch.cat(actions), torch.cat(rewards)
    chances, value = model(state)
    advantage = (reward - value).detach()
    loss = -(chances.log_prob(action) * advantage).mean() + F.mse_loss(value, reward)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
print(loss.item())
