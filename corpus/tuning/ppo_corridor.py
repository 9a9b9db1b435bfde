"""PPO on a corridor: walkers start in the middle and are paid at one end, which a lamp tells them."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class PPOConfig:
    envs: int = 16
    horizon: int = 16
    updates: int = 18
    epochs: int = 3
    minibatch: int = 64
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    value_cost: float = 0.5
    entropy_bonus: float = 0.01
    lr: float = 5e-3


class Corridor:
    """Positions -4..4; the lamp is -1 or 1; the episode ends at an end or after 15 moves."""

    def __init__(self, n, generator):
        self.n, self.g = n, generator
        self.place = torch.zeros(n)
        self.lamp = torch.ones(n)
        self.age = torch.zeros(n)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        side = torch.randint(0, 2, (self.n,), generator=self.g) * 2.0 - 1.0
        self.lamp = torch.where(which, side, self.lamp)
        self.place = torch.where(which, torch.zeros(self.n), self.place)
        self.age = torch.where(which, torch.zeros(self.n), self.age)

    def observe(self):
        return torch.stack([self.place / 4, self.lamp, self.age / 15], dim=1)

    def step(self, action):
        self.place = self.place + (action * 2.0 - 1.0)
        self.age = self.age + 1
        at_end = self.place.abs() >= 4
        reward = torch.where(at_end, torch.sign(self.place) * self.lamp, torch.full((self.n,), -0.02))
        done = at_end | (self.age >= 15)
        self.reset(done)
        return self.observe(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


@torch.no_grad()
def rollout(model, env, cfg):
    obs, steps = env.observe(), []
    for _ in range(cfg.horizon):
        policy, value = model(obs)
        action = policy.sample()
        following, reward, done = env.step(action)
        steps.append((obs, action, policy.log_prob(action), value, reward, done))
        obs = following
    _, last = model(obs)
    obs, actions, logps, values, rewards, dones = (torch.stack(column) for column in zip(*steps, strict=True))
    advantages, running = torch.zeros_like(rewards), torch.zeros(cfg.envs)
    following = last
    for t in reversed(range(cfg.horizon)):
        delta = rewards[t] + cfg.gamma * following * (1 - dones[t]) - values[t]
        running = delta + cfg.gamma * cfg.lam * (1 - dones[t]) * running
        advantages[t], following = running, values[t]
    flat = [t.flatten(0, 1) for t in (obs, actions, logps, advantages, advantages + values)]
    return flat, rewards.sum().item() / max(1.0, dones.sum().item())


def update(model, optimizer, data, cfg):
    for _ in range(cfg.epochs):
        for rows in torch.randperm(len(data[0])).split(cfg.minibatch):
            obs, action, old_logp, advantage, target = (column[rows] for column in data)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy, value = model(obs)
            ratio = (policy.log_prob(action) - old_logp).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * advantage)
            loss = -surrogate.mean() + cfg.value_cost * (value - target).pow(2).mean()
            loss = loss - cfg.entropy_bonus * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()


def main():
    cfg = PPOConfig()
    torch.manual_seed(12)
    env = Corridor(cfg.envs, torch.Generator().manual_seed(3))
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, eps=1e-5)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=cfg.updates)
    for number in range(cfg.updates):
        data, reward = rollout(model, env, cfg)
        update(model, optimizer, data, cfg)
        scheduler.step()
        if number % 3 == 2:
            print(f"update {number + 1}: reward per episode {reward:+.2f}")


if __name__ == "__main__":
    main()
