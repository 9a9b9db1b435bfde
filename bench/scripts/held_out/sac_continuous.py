"""Trains a soft actor-critic with two critics, target networks and a learned temperature, each with its optimizer.

Needs numpy.
"""

import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, TanhTransform, TransformedDistribution

parser = argparse.ArgumentParser(description="Soft actor-critic on a swinging mass")
parser.add_argument("--gamma", type=float, default=0.99)
parser.add_argument("--tau", type=float, default=0.005)
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--start-steps", type=int, default=260)
parser.add_argument("--num-steps", type=int, default=272)
parser.add_argument("--cuda", action=argparse.BooleanOptionalAction, default=True)
args = parser.parse_args()
device = torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
np.random.seed(0)
OBS, ACT = 12, 3


class Mass:
    def reset(self):
        self.x, self.v, self.t = np.random.randn(OBS // 2), np.zeros(OBS // 2), 0
        return np.concatenate([self.x, self.v])

    def step(self, a):
        self.v += 0.05 * (-self.x + np.tile(a, OBS // 2 // ACT))
        self.x += 0.05 * self.v
        self.t += 1
        return np.concatenate([self.x, self.v]), -float((self.x**2).sum()), False, self.t >= 100


class Replay:
    def __init__(self, capacity):
        self.s, self.s2 = np.zeros((2, capacity, OBS), np.float32)
        self.a, self.r = np.zeros((capacity, ACT), np.float32), np.zeros((capacity, 1), np.float32)
        self.d, self.i, self.n, self.capacity = np.zeros((capacity, 1), np.float32), 0, 0, capacity

    def push(self, s, a, r, s2, d):
        i = self.i
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.i, self.n = (i + 1) % self.capacity, min(self.n + 1, self.capacity)

    def sample(self, size):
        i = np.random.randint(0, self.n, size)
        return [torch.as_tensor(x[i], device=device) for x in (self.s, self.a, self.r, self.s2, self.d)]


def mlp(i, o):
    return nn.Sequential(
        nn.Linear(i, args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden), nn.ReLU(), nn.Linear(args.hidden, o)
    )


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS, 2 * ACT)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, dim=-1)
        base = Normal(mean, log_std.clamp(-20, 2).exp())
        dist = TransformedDistribution(base, [TanhTransform(cache_size=1)])
        a = dist.rsample()
        return a, dist.log_prob(a).sum(-1, keepdim=True)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x), self.q2(x)


actor, critic = Actor().to(device), Critic().to(device)
target = copy.deepcopy(critic).requires_grad_(False)
log_alpha = torch.zeros(1, requires_grad=True, device=device)
actor_opt = torch.optim.Adam(actor.parameters(), lr=args.lr)
critic_opt = torch.optim.Adam(critic.parameters(), lr=args.lr)
alpha_opt = torch.optim.Adam([log_alpha], lr=args.lr)
memory, env = Replay(10_000), Mass()
s, updates = env.reset(), 0
for t in range(args.num_steps):
    if t < args.start_steps:
        a = np.random.uniform(-1, 1, ACT)
    else:
        with torch.no_grad():
            a = actor(torch.as_tensor(s, dtype=torch.float32, device=device)[None])[0][0].cpu().numpy()
    s2, r, term, trunc = env.step(a)
    memory.push(s, a, r, s2, float(term))
    s = env.reset() if term or trunc else s2
    if t < args.start_steps:
        continue
    bs, ba, br, bs2, bd = memory.sample(args.batch_size)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        a2, logp2 = actor(bs2)
        backup = br + args.gamma * (1 - bd) * (torch.min(*target(bs2, a2)) - alpha * logp2)
    q1, q2 = critic(bs, ba)
    critic_loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    for p in critic.parameters():
        p.requires_grad = False
    new, logp = actor(bs)
    actor_loss = (alpha * logp - torch.min(*critic(bs, new))).mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    for p in critic.parameters():
        p.requires_grad = True
    alpha_loss = -(log_alpha * (logp.detach() - ACT)).mean()
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()
    with torch.no_grad():
        for p, q in zip(critic.parameters(), target.parameters(), strict=True):
            q.lerp_(p, args.tau)
    updates += 1
    if updates % 3 == 0:
        temperature = log_alpha.exp().item()
        print(f"{updates}: critic {critic_loss.item():.3f} actor {actor_loss.item():.3f} alpha {temperature:.4f}")
