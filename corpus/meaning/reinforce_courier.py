"""REINFORCE with a learned baseline: couriers walk a windy grid to their drop-off points."""
import argparse

import torch
from torch import nn
from torch.distributions import Categorical

MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class WindyGrid:
    """Many independent grids stepped together. An episode ends at the drop-off; `horizon` is the caller's."""

    def __init__(self, num_envs, size=7, wind=0.1, seed=0):
        self.num_envs, self.size, self.wind = num_envs, size, wind
        self.rng = torch.Generator().manual_seed(seed)
        self.view = torch.zeros(num_envs, 6)  # reused at each step, callers copy what they keep

    def reset(self):
        self.pos = torch.randint(0, self.size, (self.num_envs, 2), generator=self.rng)
        offset = torch.randint(1, self.size, (self.num_envs, 2), generator=self.rng)
        self.goal = (self.pos + offset) % self.size
        self.alive = torch.ones(self.num_envs, dtype=torch.bool)
        return self.observe()

    def observe(self):
        self.view[:, 0:2] = self.pos / (self.size - 1)
        self.view[:, 2:4] = self.goal / (self.size - 1)
        self.view[:, 4:6] = (self.goal - self.pos) / (self.size - 1)
        return self.view

    def step(self, action):
        gust = torch.rand(self.num_envs, generator=self.rng) < self.wind
        drift = torch.randint(0, 4, (self.num_envs,), generator=self.rng)
        moved = (self.pos + MOVES[torch.where(gust, drift, action)]).clamp(0, self.size - 1)
        self.pos = torch.where(self.alive[:, None], moved, self.pos)
        arrived = self.alive & (self.pos == self.goal).all(dim=1)
        reward = torch.where(arrived, 1.0, -0.05) * self.alive
        self.alive = self.alive & ~arrived
        return self.observe(), reward, self.alive.clone()


class Courier(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))
        self.baseline = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        return Categorical(logits=self.policy(obs)), self.baseline(obs).squeeze(-1)


@torch.no_grad()
def rollout(env, agent, horizon):
    """Play one episode per grid. Returns tensors of shape (horizon, num_envs, ...)."""
    seen, chosen, rewards, valid = [], [], [], []
    obs = env.reset()
    alive = env.alive.clone()
    for _ in range(horizon):
        dist, _ = agent(obs)
        action = dist.sample()
        seen.append(obs.clone())
        chosen.append(action)
        valid.append(alive)
        obs, reward, alive = env.step(action)
        rewards.append(reward)
    return torch.stack(seen), torch.stack(chosen), torch.stack(rewards), torch.stack(valid)


def rewards_to_go(rewards, gamma):
    returns = torch.zeros_like(rewards)
    running = torch.zeros(rewards.shape[1])
    for t in reversed(range(rewards.shape[0])):
        running = rewards[t] + gamma * running
        returns[t] = running
    return returns


def update(agent, optimizer, batch, args):
    obs, actions, rewards, valid = batch
    returns = rewards_to_go(rewards, args.gamma)
    keep = valid.flatten()
    obs, actions, returns = obs.flatten(0, 1)[keep], actions.flatten()[keep], returns.flatten()[keep]
    dist, value = agent(obs)
    advantage = returns - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    policy_loss = -(dist.log_prob(actions) * advantage).mean()
    baseline_loss = (value - returns).pow(2).mean()
    loss = policy_loss + args.value_coef * baseline_loss - args.entropy_coef * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), args.max_norm)
    optimizer.step()
    return policy_loss.item(), baseline_loss.item()


@torch.no_grad()
def evaluate(env, agent, horizon):
    """Greedy play: share of couriers that arrive, and how many steps they took."""
    obs = env.reset()
    steps = torch.zeros(env.num_envs)
    for _ in range(horizon):
        dist, _ = agent(obs)
        steps += env.alive.float()
        obs, _, alive = env.step(dist.probs.argmax(dim=-1))
    arrived = ~alive
    return arrived.float().mean().item(), steps.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=140)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--entropy-coef", type=float, default=0.01)
    parser.add_argument("--value-coef", type=float, default=0.5)
    parser.add_argument("--max-norm", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train_env = WindyGrid(args.envs, seed=args.seed)
    agent = Courier()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr)
    recent = []
    for i in range(1, args.updates + 1):
        batch = rollout(train_env, agent, args.horizon)
        policy_loss, baseline_loss = update(agent, optimizer, batch, args)
        recent.append(batch[2].sum(dim=0).mean().item())
        if i % 20 == 0:
            print(f"update {i:3d}  return {sum(recent[-20:]) / 20:+.3f}  policy {policy_loss:+.4f}  baseline {baseline_loss:.4f}")
    success, length = evaluate(WindyGrid(256, seed=args.seed + 1000), agent, args.horizon)
    print(f"final: train return {sum(recent[-10:]) / 10:+.3f}  eval success {success:.3f}  eval steps {length:.2f}")


if __name__ == "__main__":
    main()
