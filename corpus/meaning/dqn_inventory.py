"""Double DQN for a small shop's ordering problem: how many crates to order each morning."""
import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    shops: int = 64
    updates: int = 150
    steps_per_update: int = 2
    batch_size: int = 256
    capacity: int = 16_384
    gamma: float = 0.9
    lr: float = 2e-3
    eps_range: tuple = (1.0, 0.05)
    eps_updates: int = 90
    sync_every: int = 5
    seed: int = 5


class Shops:
    """`n` shops in parallel. Running empty twice in a row ends the contract; 28 days is only a time limit."""

    n_actions, obs_dim = 6, 4
    max_stock, time_limit = 14, 28

    def __init__(self, n, seed):
        self.n = n
        self.rng = torch.Generator().manual_seed(seed)
        self.stock, self.day, self.phase, self.empty = (torch.zeros(n) for _ in range(4))
        self.restart(torch.ones(n, dtype=torch.bool))

    def restart(self, which):
        k = int(which.sum())
        self.stock[which] = torch.randint(2, 9, (k,), generator=self.rng).float()
        self.phase[which] = torch.randint(0, 7, (k,), generator=self.rng).float()
        self.day[which] = self.empty[which] = 0.0

    def observe(self):
        angle = 2 * math.pi * (self.phase + self.day) / 7
        return torch.stack([self.stock / self.max_stock, angle.sin(), angle.cos(), self.empty], dim=1)

    def step(self, action):
        """Returns what is seen after the day, the reward, and two flags: contract lost, time is up."""
        on_hand = (self.stock + action).clamp(max=self.max_stock)
        rate = 3.0 + 1.5 * torch.sin(2 * math.pi * (self.phase + self.day) / 7)
        demand = torch.poisson(rate, generator=self.rng)
        sold = torch.minimum(on_hand, demand)
        self.stock = on_hand - sold
        ran_out = demand > on_hand
        lost = ran_out & (self.empty > 0)
        self.empty = ran_out.float()
        self.day = self.day + 1
        reward = 0.25 * sold - 0.1 * action - 0.04 * self.stock - 0.3 * ran_out.float() - 1.0 * lost.float()
        return self.observe(), reward, lost, self.day >= self.time_limit


class Replay:
    def __init__(self, capacity, obs_dim):
        self.obs = torch.zeros(capacity, obs_dim)
        self.next_obs = torch.zeros(capacity, obs_dim)
        self.action = torch.zeros(capacity, dtype=torch.int64)
        self.reward = torch.zeros(capacity, dtype=torch.float32)
        self.terminal = torch.zeros(capacity, dtype=torch.float32)
        self.capacity, self.size, self.head = capacity, 0, 0

    def add(self, obs, action, reward, next_obs, terminal):
        n = obs.shape[0]
        slot = (self.head + torch.arange(n)) % self.capacity
        self.obs[slot], self.next_obs[slot] = obs, next_obs
        self.action[slot] = action
        self.reward[slot] = reward.to(self.reward.dtype)
        self.terminal[slot] = terminal.float()
        self.head = (self.head + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, k):
        i = torch.randint(0, self.size, (k,))
        return self.obs[i], self.action[i], self.reward[i], self.next_obs[i], self.terminal[i]


class DQN:
    def __init__(self, cfg):
        self.cfg = cfg
        self.online = nn.Sequential(nn.Linear(Shops.obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, Shops.n_actions))
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=cfg.lr)

    def epsilon(self, update):
        start, end = self.cfg.eps_range
        return start + min(1.0, update / self.cfg.eps_updates) * (end - start)

    @torch.no_grad()
    def act(self, obs, eps):
        greedy = self.online(obs).argmax(dim=1)
        explore = torch.rand(obs.shape[0]) < eps
        return torch.where(explore, torch.randint(0, Shops.n_actions, greedy.shape), greedy)

    def learn(self, batch, update):
        obs, action, reward, next_obs, terminal = batch
        with torch.no_grad():
            best = self.online(next_obs).argmax(dim=1, keepdim=True)
            bootstrap = self.target(next_obs).gather(1, best).squeeze(1)
            goal = reward + self.cfg.gamma * (1.0 - terminal) * bootstrap
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if update % self.cfg.sync_every == 0:
            self.target.load_state_dict(self.online.state_dict())
        return loss.item()


def collect(shops, agent, replay, steps, eps):
    total = 0.0
    for _ in range(steps):
        obs = shops.observe()
        action = agent.act(obs, eps)
        next_obs, reward, lost, timeout = shops.step(action)
        replay.add(obs, action, reward, next_obs, lost)
        shops.restart(lost | timeout)
        total += reward.mean().item()
    return total / steps


@torch.no_grad()
def evaluate(agent, n=200, seed=999):
    shops = Shops(n, seed)
    alive, score = torch.ones(n, dtype=torch.bool), torch.zeros(n)
    for _ in range(Shops.time_limit):
        _, reward, lost, _ = shops.step(agent.act(shops.observe(), eps=0.0))
        score += reward * alive
        alive &= ~lost
    return score.mean().item(), alive.float().mean().item()


def main(cfg=Config()):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    shops, agent = Shops(cfg.shops, cfg.seed), DQN(cfg)
    replay = Replay(cfg.capacity, Shops.obs_dim)
    collect(shops, agent, replay, steps=20, eps=1.0)
    for update in range(1, cfg.updates + 1):
        reward = collect(shops, agent, replay, cfg.steps_per_update, agent.epsilon(update))
        loss = agent.learn(replay.sample(cfg.batch_size), update)
        if update % 30 == 0:
            print(f"{update:4d}  loss {loss:.4f}  reward/day {reward:+.3f}  eps {agent.epsilon(update):.2f}")
    score, kept = evaluate(agent)
    print(f"final: train loss {loss:.4f}  eval score {score:.2f}  contracts kept {kept:.2f}")


if __name__ == "__main__":
    main()
