"""A clipped policy gradient with a value head on a balancing stick: several epochs over each set of rollouts."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(91)
STICKS, TICKS = 32, 12


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, state):
        h = self.shared(state)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


def tick(state, action):
    lean, spin = state.unbind(-1)
    spin = spin + 0.3 * lean + 0.25 * (2.0 * action - 1)
    lean = lean + 0.2 * spin
    return torch.stack([lean, spin], -1).clamp(-3, 3), 1.0 - lean.abs().clamp(max=2)


@torch.no_grad()
def rollout(model):
    state, steps = 0.3 * torch.randn(STICKS, 2), []
    for _ in range(TICKS):
        dist, value = model(state)
        action = dist.sample()
        after, reward = tick(state, action)
        steps.append((state, action, dist.log_prob(action), value, reward))
        state = after
    states, actions, log_probs, values, rewards = (torch.stack(part) for part in zip(*steps, strict=True))
    future, returns = model(state)[1], torch.zeros_like(rewards)
    for t in reversed(range(TICKS)):
        future = rewards[t] + 0.95 * future
        returns[t] = future
    gain = returns - values
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    parts = (states, actions, log_probs, returns, gain)
    return [part.flatten(0, 1) for part in parts], rewards.mean().item()


model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-5)
for iteration in range(4):
    (states, actions, old, returns, gain), mean_reward = rollout(model)
    for _ in range(2):
        for rows in torch.randperm(len(states)).split(96):
            dist, value = model(states[rows])
            ratio = (dist.log_prob(actions[rows]) - old[rows]).exp()
            bounded = torch.min(ratio * gain[rows], ratio.clamp(0.8, 1.2) * gain[rows])
            loss = -bounded.mean() + 0.5 * (value - returns[rows]).square().mean() - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    print(f"{iteration}: reward {mean_reward:.3f}, loss {loss.item():.3f}")
