"""PPO on a small vectorized environment: keep a ball on a plank that tips over."""
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class PlankEnv:
    """A ball on a plank. Actions: tilt left, hold, tilt right. Observation: place, speed, share of the time left.
    Each step on the plank pays, most in the middle; the episode ends when the ball drops off or after 80 steps."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.x, self.v, self.t = np.zeros(n), np.zeros(n), np.zeros(n, dtype=int)
        self.limit = 80
        self._reset(np.ones(n, dtype=bool))

    def _reset(self, who):
        k = int(who.sum())
        self.x[who] = self.rng.uniform(-0.5, 0.5, k)
        self.v[who] = self.rng.uniform(-0.05, 0.05, k)
        self.t[who] = 0

    def obs(self):
        return torch.tensor(np.stack([self.x, 5 * self.v, 1 - self.t / self.limit], 1), dtype=torch.float32)

    def step(self, action):
        self.v = self.v + 0.02 * self.x + 0.02 * (action - 1) + 0.025 * self.rng.normal(size=self.n)
        self.x = self.x + self.v
        self.t += 1
        dropped = np.abs(self.x) > 1.0
        reward = 0.1 * (1.0 - np.minimum(np.abs(self.x), 1.0) ** 2)
        lasted = self.t >= self.limit
        done = dropped | lasted
        self._reset(done)
        return (self.obs(), torch.tensor(reward, dtype=torch.float32), torch.tensor(done, dtype=torch.float32),
                lasted & ~dropped)


def mlp(out, gain):
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, out))
    nn.init.orthogonal_(net[-1].weight, gain)
    return net


def evaluate(actor, critic, gamma=0.98, n=200, seed=999):
    """One episode in each of n environments with sampled actions: mean return, share of balls that stay on,
    and how much of the variance of the discounted returns the critic explains."""
    env, gen = PlankEnv(n, seed), torch.Generator().manual_seed(seed)
    alive, stayed, obs = torch.ones(n), np.zeros(n, dtype=bool), env.obs()
    values, rewards, masks = [], [], []
    with torch.no_grad():
        while alive.any():
            values.append(critic(obs).squeeze(-1))
            masks.append(alive)
            action = torch.multinomial(actor(obs).softmax(-1), 1, generator=gen).squeeze(-1)
            obs, reward, done, lasted = env.step(action.numpy())
            rewards.append(reward * alive)
            stayed |= lasted & (alive.numpy() > 0)
            alive = alive * (1 - done)
    togo, total = [], torch.zeros(n)
    for reward in reversed(rewards):
        total = reward + gamma * total
        togo.insert(0, total)
    mask, togo, values = torch.stack(masks) > 0, torch.stack(togo), torch.stack(values)
    explained = 1 - (togo - values)[mask].var() / togo[mask].var()
    return sum(rewards).mean().item(), stayed.mean(), explained.item()


torch.manual_seed(5)
N, T, UPDATES, EPOCHS, MINI = 32, 48, 18, 4, 4
GAMMA, LAM, CLIP, ENT, VF, LR = 0.98, 0.95, 0.2, 0.003, 0.5, 1.5e-3

actor, critic = mlp(3, 0.01), mlp(1, 1.0)
params = list(actor.parameters()) + list(critic.parameters())
opt = torch.optim.Adam(params, lr=LR, eps=1e-5)
env = PlankEnv(N, seed=1)
obs = env.obs()
print("before training: return %.3f, stayed %.3f, explained variance %.3f" % evaluate(actor, critic))

for update in range(UPDATES):
    frac = 1.0 - update / UPDATES
    for group in opt.param_groups:
        group["lr"] = LR * frac

    b_obs, b_act, b_logp = torch.zeros(T, N, 3), torch.zeros(T, N, dtype=torch.long), torch.zeros(T, N)
    b_rew, b_done, b_val = torch.zeros(T, N), torch.zeros(T, N), torch.zeros(T, N)
    with torch.no_grad():
        for t in range(T):
            dist = Categorical(logits=actor(obs))
            action = dist.sample()
            b_obs[t], b_act[t], b_logp[t] = obs, action, dist.log_prob(action)
            b_val[t] = critic(obs).squeeze(-1)
            obs, b_rew[t], b_done[t], _ = env.step(action.numpy())
        next_val = critic(obs).squeeze(-1)

        adv, gae = torch.zeros(T, N), torch.zeros(N)
        for t in reversed(range(T)):
            alive = 1.0 - b_done[t]
            delta = b_rew[t] + GAMMA * next_val * alive - b_val[t]
            gae = delta + GAMMA * LAM * alive * gae
            adv[t] = gae
            next_val = b_val[t]
        ret = adv + b_val

    f_obs, f_act, f_logp = b_obs.reshape(-1, 3), b_act.reshape(-1), b_logp.reshape(-1)
    f_adv, f_ret = adv.reshape(-1), ret.reshape(-1)
    losses = []
    for _ in range(EPOCHS):
        for idx in torch.randperm(T * N).chunk(MINI):
            dist = Categorical(logits=actor(f_obs[idx]))
            ratio = (dist.log_prob(f_act[idx]) - f_logp[idx]).exp()
            a = f_adv[idx]
            a = (a - a.mean()) / (a.std() + 1e-8)
            policy_loss = -torch.min(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
            value_loss = (critic(f_obs[idx]).squeeze(-1) - f_ret[idx]).pow(2).mean()
            entropy = dist.entropy().mean()
            loss = policy_loss + VF * value_loss - ENT * entropy
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 0.5)
            opt.step()
            losses.append(loss.item())
    if update % 4 == 0:
        print(f"update {update}: loss {np.mean(losses):.4f} value {value_loss.item():.4f} entropy {entropy.item():.3f} "
              f"return {evaluate(actor, critic)[0]:.3f}")

print("final: return %.3f, stayed %.3f, explained variance %.3f" % evaluate(actor, critic))
