"""A cart is to be kept in the middle: policy gradients with a learned baseline and entropy, episodes in parallel."""

import torch
from torch import nn
from torch.distributions import Categorical


class Carts:
    """Many carts on lines; a push to either side each step, a reward for being near the middle."""

    def __init__(self, count):
        self.count = count

    def reset(self):
        self.place = 2 * torch.rand(self.count) - 1
        self.speed = torch.zeros(self.count)
        return self.look()

    def look(self):
        return torch.stack([self.place, self.speed], dim=1)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.1 * (2.0 * action - 1.0)
        self.place = (self.place + self.speed).clamp(-2, 2)
        return self.look(), 1.0 - self.place.abs()


class Agent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
        self.value = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, state):
        return Categorical(logits=self.policy(state)), self.value(state).squeeze(-1)


def play(agent, carts, length):
    state = carts.reset()
    states, actions, rewards = [], [], []
    for _ in range(length):
        with torch.no_grad():
            action = agent(state)[0].sample()
        states.append(state)
        actions.append(action)
        state, reward = carts.step(action.float())
        rewards.append(reward)
    return torch.stack(states), torch.stack(actions), torch.stack(rewards)


def returns_of(rewards, gamma):
    total = torch.zeros_like(rewards[0])
    returns = torch.zeros_like(rewards)
    for t in reversed(range(len(rewards))):
        total = rewards[t] + gamma * total
        returns[t] = total
    return returns


torch.manual_seed(80)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
carts = Carts(16)
log = []
for episode in range(25):
    states, actions, rewards = play(agent, carts, 12)
    returns = returns_of(rewards, 0.95)
    policy, value = agent(states.flatten(0, 1))
    returns, actions = returns.flatten(), actions.flatten()
    advantage = returns - value.detach()
    log_prob = policy.log_prob(actions)
    policy_loss = -(log_prob * advantage).mean()
    value_loss = (value - returns).pow(2).mean()
    entropy = policy.entropy().mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
    optimizer.step()
    log.append((loss.item(), rewards.mean().item()))
print("reward at first and at last:", log[0][1], log[-1][1])
