"""PPO (clipped surrogate, GAE) keeps a fleet of drones near a beacon in a repelling wind field."""
import argparse

import torch
from torch import nn
from torch.distributions import Normal


class HoverFleet:
    """Continuing task. A drone that leaves the box crashes: that is terminal and it is put back at random."""

    def __init__(self, n, seed):
        self.n = n
        self.gen = torch.Generator().manual_seed(seed)
        self.state = self._fresh(n)

    def _fresh(self, k):
        pos = torch.rand(k, 2, generator=self.gen) * 2.4 - 1.2
        vel = torch.randn(k, 2, generator=self.gen) * 0.1
        return torch.cat([pos, vel], dim=1)

    def step(self, action):
        pos, vel = self.state[:, :2], self.state[:, 2:]
        gust = torch.randn(self.n, 2, generator=self.gen) * 0.04
        pull = torch.tensor([0.0, -0.05])
        vel = 0.92 * vel + 0.25 * action.clamp(-1, 1) + 0.08 * pos + pull + gust
        pos = pos + 0.35 * vel
        crashed = (pos.abs() > 2.0).any(dim=1)
        reward = 0.25 * (1.0 - pos.norm(dim=1)) - crashed.float()
        nxt = torch.cat([pos, vel], dim=1)
        self.state = torch.where(crashed[:, None], self._fresh(self.n), nxt)
        return self.state.clone(), reward, crashed.float()


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=4, act_dim=2, hidden=56):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, act_dim))
        self.critic = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.4))

    def dist(self, obs):
        return Normal(self.actor(obs), self.log_std.exp())

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


class PPOTrainer:
    def __init__(self, args):
        self.args = args
        self.fleet = HoverFleet(args.drones, args.seed)
        self.net = ActorCritic()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=args.lr, eps=1e-5)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda i: max(0.0, 1.0 - i / args.iterations))

    @torch.no_grad()
    def collect(self):
        rows = {k: [] for k in ("obs", "act", "logp", "rew", "done", "val")}
        obs = self.fleet.state.clone()
        for _ in range(self.args.steps):
            dist = self.net.dist(obs)
            act = dist.sample()
            nxt, rew, done = self.fleet.step(act)
            for key, item in zip(rows, (obs, act, dist.log_prob(act).sum(-1), rew, done, self.net.value(obs))):
                rows[key].append(item)
            obs = nxt
        batch = {k: torch.stack(v) for k, v in rows.items()}
        batch["adv"] = self.gae(batch, self.net.value(obs))
        batch["ret"] = batch["adv"] + batch["val"]
        return batch

    def gae(self, batch, last_value):
        adv = torch.zeros_like(batch["rew"])
        carry, next_value = torch.zeros_like(last_value), last_value
        for t in reversed(range(self.args.steps)):
            alive = 1.0 - batch["done"][t]
            delta = batch["rew"][t] + self.args.gamma * alive * next_value - batch["val"][t]
            carry = delta + self.args.gamma * self.args.lam * alive * carry
            adv[t], next_value = carry, batch["val"][t]
        return adv

    def update(self, batch):
        a = self.args
        obs, act = batch["obs"].flatten(0, 1), batch["act"].flatten(0, 1)
        logp_old, ret = batch["logp"].flatten(), batch["ret"].flatten()
        adv = batch["adv"].flatten()
        pi_sum = v_sum = 0.0
        for _ in range(a.epochs):
            for idx in torch.randperm(len(obs)).chunk(a.minibatches):
                dist = self.net.dist(obs[idx])
                ratio = (dist.log_prob(act[idx]).sum(-1) - logp_old[idx]).exp()
                norm_adv = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                bounded = ratio.clamp(1 - a.clip, 1 + a.clip) * norm_adv
                pi_loss = -torch.min(ratio * norm_adv, bounded).mean()
                v_loss = 0.5 * (self.net.value(obs[idx]) - ret[idx]).pow(2).mean()
                loss = pi_loss + a.vf_coef * v_loss - a.ent_coef * dist.entropy().sum(-1).mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()
                pi_sum, v_sum = pi_sum + pi_loss.item(), v_sum + v_loss.item()
        self.schedule.step()
        k = a.epochs * a.minibatches
        return pi_sum / k, v_sum / k

    @torch.no_grad()
    def evaluate(self, n=128, steps=60):
        fleet = HoverFleet(n, self.args.seed + 77)
        obs, total, crashes = fleet.state.clone(), 0.0, 0.0
        for _ in range(steps):
            obs, rew, done = fleet.step(self.net.dist(obs).mean)
            total += rew.mean().item()
            crashes += done.mean().item()
        return total / steps, crashes

    def fit(self):
        for i in range(1, self.args.iterations + 1):
            batch = self.collect()
            pi_loss, v_loss = self.update(batch)
            reward = batch["rew"].mean().item()
            if i % 3 == 0:
                print(f"iter {i:2d}  reward/step {reward:+.3f}  pi {pi_loss:+.4f}  value {v_loss:.3f}  std {self.net.log_std.exp().mean().item():.3f}")
        return reward


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--iterations", type=int, default=15)
    p.add_argument("--drones", type=int, default=48)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--minibatches", type=int, default=3)
    p.add_argument("--gamma", type=float, default=0.96)
    p.add_argument("--lam", type=float, default=0.92)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--vf-coef", type=float, default=0.5)
    p.add_argument("--ent-coef", type=float, default=0.001)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=21)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    trainer = PPOTrainer(args)
    before, _ = trainer.evaluate()
    reward = trainer.fit()
    after, crashes = trainer.evaluate()
    print(f"final: train reward/step {reward:+.3f}  eval before {before:+.3f}  eval after {after:+.3f}  crashes per drone {crashes:.3f}")


if __name__ == "__main__":
    main()
