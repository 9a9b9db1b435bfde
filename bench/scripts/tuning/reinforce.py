"""REINFORCE with a value head: actions are drawn one by one, and an episode of unknown length is the batch."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
draws = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Pole:
    def reset(self):
        self.time, self.state = 0, draws.normal(size=6).astype(np.float32)
        return self.state

    def step(self, action):
        self.time += 1
        self.state = (0.9 * self.state + 0.1 * (action - 1)).astype(np.float32)
        return self.state, float(-np.abs(self.state).sum()), self.time >= 40


policy = nn.Sequential(nn.Linear(6, 192), nn.Tanh(), nn.Linear(192, 192), nn.Tanh(), nn.Linear(192, 3)).to(device)
value = nn.Linear(6, 1).to(device)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=1e-3)
world = Pole()
for episode in range(5):
    state, done, logs, rewards, values, entropies = world.reset(), False, [], [], [], []
    while not done:
        seen = torch.from_numpy(state).float().unsqueeze(0).to(device)
        choice = Categorical(logits=policy(seen))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        entropies.append(choice.entropy())
        values.append(value(seen).squeeze(-1))
        state, reward, done = world.step(action.item())
        rewards.append(reward)
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns, device=device)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    logs, values = torch.cat(logs), torch.cat(values)
    gain = returns - values.detach()
    if gain.abs().max() > 1e6:
        raise RuntimeError("diverged")
    loss = -(logs * gain).mean() + 0.5 * (values - returns).pow(2).mean() - 0.01 * torch.cat(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5, error_if_nonfinite=True)
    optimizer.step()
    print(episode, float(loss), f"{norm:.3f}", np.mean(rewards), gain.topk(5).indices.tolist())
