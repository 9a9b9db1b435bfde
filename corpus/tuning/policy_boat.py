"""A boat kept in the middle of a river by actor and critic: many boats at once, short rollouts, a slow critic."""

import copy

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

BOATS, HORIZON, UPDATES = 24, 16, 40
GAMMA, SLOWNESS, ENTROPY = 0.95, 0.9, 0.01


class River:
    """Boats at some distance from the middle, under a current of their own; 0, 1, 2 steer left, not, right."""

    def __init__(self, boats, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.boats = boats
        self.away, self.speed, self.current = torch.zeros(3, boats)
        self.place(torch.ones(boats, dtype=torch.bool))

    def place(self, which):
        def drawn(spread):
            return spread * (2 * torch.rand(self.boats, generator=self.generator) - 1)

        self.away = torch.where(which, drawn(1.0), self.away)
        self.speed = torch.where(which, torch.zeros(self.boats), self.speed)
        self.current = torch.where(which, drawn(0.1), self.current)

    def seen(self):
        return torch.stack([self.away, 4 * self.speed, 10 * self.current], dim=1)

    def step(self, steering):
        self.speed = 0.8 * self.speed + 0.1 * (steering - 1) + 0.3 * self.current
        self.away = self.away + self.speed
        aground = self.away.abs() > 2
        reward = 1 - self.away.abs() - 2 * aground.float()
        self.place(aground)
        return self.seen(), reward, aground.float()


class Actor(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.steer = nn.Linear(width, 3)

    def forward(self, seen):
        return F.log_softmax(self.steer(self.body(seen)), dim=-1)


class Critic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.worth = nn.Linear(width, 1)

    def forward(self, seen):
        return self.worth(self.body(seen)).squeeze(-1)


def rollout(river, actor):
    """What was seen, done and earned, over time and boats, and what is seen at last."""
    seen = river.seen()
    rows = []
    for _ in range(HORIZON):
        with torch.no_grad():
            steering = Categorical(logits=actor(seen)).sample()
        after, reward, aground = river.step(steering)
        rows.append((seen, steering, reward, aground))
        seen = after
    return *(torch.stack(column) for column in zip(*rows, strict=True)), seen


def returns(reward, aground, worth_at_last):
    total, found = worth_at_last, []
    for r, ended in zip(reward.flip(0), aground.flip(0), strict=True):
        total = r + GAMMA * (1 - ended) * total
        found.append(total)
    return torch.stack(found).flip(0)


def trial(actor, steps=30):
    """Mean reward of boats that always steer as seems best."""
    river, earned = River(32, seed=99), 0.0
    with torch.no_grad():
        for _ in range(steps):
            _, reward, _ = river.step(actor(river.seen()).argmax(dim=1))
            earned += reward.mean().item()
    return earned / steps


def learn():
    torch.manual_seed(22)
    river = River(BOATS, seed=5)
    actor, critic = Actor(), Critic()
    slow_critic = copy.deepcopy(critic)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-2)
    for update in range(UPDATES):
        seen, steering, reward, aground, at_last = rollout(river, actor)
        with torch.no_grad():
            goal = returns(reward, aground, slow_critic(at_last))
        worth = critic(seen)
        critic_loss = F.smooth_l1_loss(worth, goal)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 2.0)
        critic_optimizer.step()

        gain = goal - worth.detach()
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        chances = actor(seen)
        taken = chances.gather(2, steering.unsqueeze(2)).squeeze(2)
        entropy = -(chances.exp() * chances).sum(dim=2).mean()
        actor_loss = -(taken * gain).mean() - ENTROPY * entropy
        actor_optimizer.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.1)
        actor_optimizer.step()

        with torch.no_grad():
            for slow, fast in zip(slow_critic.parameters(), critic.parameters(), strict=True):
                slow.mul_(SLOWNESS).add_(fast, alpha=1 - SLOWNESS)
        if update % 10 == 9:
            print(f"{update + 1}: reward {reward.mean():.3f}, trial {trial(actor):.3f}, critic {critic_loss:.3f}")


if __name__ == "__main__":
    learn()
