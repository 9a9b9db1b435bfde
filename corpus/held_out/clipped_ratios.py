"""PPO: a kite is kept at its height by pulling or paying out line; sixteen kites fly at once, in plain torch."""

import torch
from torch import nn
from torch.distributions import Categorical

KITES, HORIZON, ITERATIONS = 16, 48, 9
GAMMA, LAMBDA = 0.97, 0.95
CLIP, PASSES, MINIBATCH = 0.2, 5, 128
torch.manual_seed(19)


class Kites:
    """Height and speed of each kite; wind blows it about, and a kite that leaves its band is started anew."""

    def __init__(self, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(count, 2)
        self._launch(torch.ones(count, dtype=torch.bool))

    def _launch(self, which):
        fresh = 0.3 * torch.randn(self.state.shape, generator=self.generator)
        self.state = torch.where(which[:, None], fresh, self.state)

    def step(self, action):
        height, speed = self.state.unbind(dim=1)
        wind = 0.05 * torch.randn(len(height), generator=self.generator)
        speed = speed + 0.12 * (action.float() - 1) + 0.03 * height + wind
        self.state = torch.stack([height + 0.2 * speed, speed], dim=1)
        gone = self.state[:, 0].abs() > 1.5
        reward = 1 - self.state[:, 0].pow(2) - 5.0 * gone
        self._launch(gone)
        return self.state, reward, gone.float()


class ActorCritic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))
        self.critic = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, state):
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


@torch.no_grad()
def fly(net, kites):
    """What the kites did over a horizon with the policy as it is, with advantages (GAE) and returns."""
    states, actions, logps, values, rewards, ends = [], [], [], [], [], []
    for _ in range(HORIZON):
        state = kites.state
        policy, value = net(state)
        action = policy.sample()
        _, reward, gone = kites.step(action)
        states.append(state), actions.append(action), logps.append(policy.log_prob(action))
        values.append(value), rewards.append(reward), ends.append(gone)
    following = net(kites.state)[1]
    advantage, advantages = torch.zeros(KITES), []
    for t in reversed(range(HORIZON)):
        delta = rewards[t] + GAMMA * following * (1 - ends[t]) - values[t]
        advantage = delta + GAMMA * LAMBDA * (1 - ends[t]) * advantage
        following = values[t]
        advantages.append(advantage)
    advantages = torch.stack(advantages[::-1])
    returns = advantages + torch.stack(values)
    flown = [torch.stack(states), torch.stack(actions), torch.stack(logps), advantages, returns]
    return [part.flatten(0, 1) for part in flown], torch.stack(rewards).mean().item()


@torch.no_grad()
def calm_flight(net):
    """Mean reward when the likeliest action is always taken, on kites of its own."""
    kites, rewards = Kites(32, seed=500), []
    for _ in range(60):
        policy, _ = net(kites.state)
        rewards.append(kites.step(policy.probs.argmax(dim=-1))[1])
    return torch.stack(rewards).mean().item()


net, kites = ActorCritic(), Kites(KITES, seed=4)
optimizer = torch.optim.Adam(net.parameters(), lr=8e-3, eps=1e-5)
for iteration in range(ITERATIONS):
    for group in optimizer.param_groups:
        group["lr"] = 8e-3 * (1 - iteration / ITERATIONS)
    (states, actions, old_logps, advantages, returns), mean_reward = fly(net, kites)
    clipped = []
    for _ in range(PASSES):
        for rows in torch.randperm(len(states)).split(MINIBATCH):
            policy, value = net(states[rows])
            advantage = advantages[rows]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (policy.log_prob(actions[rows]) - old_logps[rows]).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            value_loss = 0.5 * (value - returns[rows]).pow(2).mean()
            loss = -surrogate.mean() + 0.5 * value_loss - 0.005 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            clipped.append(((ratio - 1).abs() > CLIP).float().mean().item())
    if iteration % 3 == 2:
        share = sum(clipped) / len(clipped)
        print(f"{iteration} reward {mean_reward:.3f} clipped {share:.2f} calm flight {calm_flight(net):.3f}")
