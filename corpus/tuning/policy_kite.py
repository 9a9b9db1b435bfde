"""A kite held at its height by pulling a line in gusty wind: actor and critic, many kites flown at once."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

KITES, HORIZON, UPDATES = 48, 16, 36
GAMMA, LAMBDA, ENTROPY, VALUE = 0.9, 0.9, 0.003, 0.1


class Sky:
    """Height, speed and wind of each kite; a pull lifts more in strong wind."""

    def __init__(self, kites, seed):
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros((kites, 3), dtype=np.float32)

    def reset(self):
        shape = self.state.shape[0]
        self.state[:, 0] = self.rng.normal(0.0, 1.0, shape)
        self.state[:, 1] = self.rng.normal(0.0, 0.3, shape)
        self.state[:, 2] = self.rng.uniform(0.5, 1.5, shape)
        return torch.from_numpy(self.state.copy())

    def step(self, pull):
        height, speed, wind = self.state.T
        pull = np.clip(pull.numpy(), -2.0, 2.0)
        speed = 0.8 * speed + 0.3 * pull * wind
        height = height + 0.5 * speed
        wind = np.clip(wind + self.rng.normal(0.0, 0.05, wind.shape), 0.5, 1.5)
        self.state = np.stack([height, speed, wind], axis=1).astype(np.float32)
        reward = np.exp(-np.square(height)) - 0.02 * np.square(pull)
        return torch.from_numpy(self.state.copy()), torch.from_numpy(reward.astype(np.float32))


class Agent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, 1)
        self.critic = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full((1,), -0.5))
        self.register_buffer("scale", torch.tensor([2.0, 1.0, 1.0]))

    def forward(self, seen):
        seen = seen / self.scale
        features = self.trunk(seen)
        mean = self.actor(features).squeeze(-1)
        value = self.critic(features).squeeze(-1)
        return Normal(mean, self.log_std.exp()), value


def fly(agent, sky):
    """One flight of all kites under the present policy."""
    seen, flight = sky.reset(), []
    for _ in range(HORIZON):
        with torch.no_grad():
            policy, _ = agent(seen)
            pull = policy.sample()
        after, reward = sky.step(pull)
        flight.append((seen, pull, reward))
        seen = after
    states, pulls, rewards = (torch.stack(part) for part in zip(*flight, strict=True))
    return states, pulls, rewards, seen


def advantages_of(rewards, values, last):
    """Generalised advantage estimates; the flight is cut, not over, so the last value is bootstrapped."""
    found, running = torch.zeros_like(rewards), torch.zeros(KITES)
    following = torch.cat([values[1:], last.unsqueeze(0)])
    for t in reversed(range(HORIZON)):
        error = rewards[t] + GAMMA * following[t] - values[t]
        running = error + GAMMA * LAMBDA * running
        found[t] = running
    return found


@torch.no_grad()
def evaluate(agent, flights=3):
    sky, total = Sky(KITES, seed=77), 0.0
    for _ in range(flights):
        seen = sky.reset()
        for _ in range(HORIZON):
            policy, _ = agent(seen)
            seen, reward = sky.step(policy.mean)
            total += reward.mean().item()
    return total / flights


torch.manual_seed(9)
np.random.seed(9)
sky = Sky(KITES, seed=1)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=0.006)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, total_iters=UPDATES)
best = float("-inf")
print(f"before: return {evaluate(agent):.2f}")
for update in range(UPDATES):
    states, pulls, rewards, last = fly(agent, sky)
    policy, values = agent(states)
    with torch.no_grad():
        _, last_value = agent(last)
        advantages = advantages_of(rewards, values, last_value)
        returns = advantages + values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)

    policy_loss = -(policy.log_prob(pulls) * advantages).mean()
    value_loss = (values - returns).pow(2).mean()
    entropy = policy.entropy().mean()
    loss = policy_loss + VALUE * value_loss - ENTROPY * entropy

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    scheduler.step()

    if (update + 1) % 6 == 0:
        score = evaluate(agent)
        spread = agent.log_std.exp().item()
        print(f"update {update + 1} reward {rewards.mean():.3f} spread {spread:.3f} return {score:.2f}")
        if score > best:
            best = score
            torch.save(agent.state_dict(), "kite.pt")
print(f"best return {best:.2f}")
