"""A waiter learns which dish to recommend: one-step policy gradient over guests, with a slow critic as baseline."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

DISHES = 6
FEATURES = 8
STEPS = 160
GUESTS_PER_STEP = 64
ENTROPY_BONUS = 0.01

torch.manual_seed(33)

# ---------------------------------------------------------------- the restaurant
# Nobody but the simulator knows `taste`. Satisfaction is a grade between -1 and 1, with noise.
world = torch.Generator().manual_seed(7)
taste = torch.randn(FEATURES, DISHES, generator=world) / math.sqrt(FEATURES)
evening_special = torch.randn(DISHES, generator=world) * 0.5


def arrive(count, generator):
    guests = torch.randn(count, FEATURES, generator=generator)
    guests[:, 0] = (guests[:, 0] > 0).float() - 0.5  # lunch or dinner
    return guests


def satisfaction(guests, dishes, generator=None):
    mean = guests @ taste + torch.outer(guests[:, 0], evening_special)
    chosen = mean.gather(1, dishes.unsqueeze(1)).squeeze(1)
    noise = 0.0 if generator is None else 0.2 * torch.randn(len(guests), generator=generator)
    return torch.tanh(chosen + noise)


# ---------------------------------------------------------------- the waiter
class Waiter(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.recommend = nn.Linear(hidden, DISHES)
        nn.init.normal_(self.recommend.weight, std=0.01)
        nn.init.zeros_(self.recommend.bias)

    def forward(self, guests):
        return self.recommend(self.body(guests))


class Critic(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, guests):
        return self.net(guests).squeeze(-1)


waiter = Waiter()
critic = Critic()
slow_critic = copy.deepcopy(critic)
optimizer = torch.optim.Adam([*waiter.parameters(), *critic.parameters()], lr=3e-3)
arrivals = torch.Generator().manual_seed(8)
moods = torch.Generator().manual_seed(9)
test_guests = arrive(300, torch.Generator().manual_seed(10))


def greedy_grade():
    """Mean satisfaction, without noise, of guests never met in training when the likeliest dish is recommended."""
    with torch.no_grad():
        dishes = waiter(test_guests).argmax(dim=1)
        return satisfaction(test_guests, dishes).mean().item()


# ---------------------------------------------------------------- evenings
print(f"before: {greedy_grade():.3f}")
grade_so_far = 0.0
step = 0
while step < STEPS:
    guests = arrive(GUESTS_PER_STEP, arrivals)
    policy = Categorical(logits=waiter(guests))
    dishes = policy.sample()
    rewards = satisfaction(guests, dishes, moods)

    with torch.no_grad():
        advantage = rewards - slow_critic(guests)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    policy_loss = -(policy.log_prob(dishes) * advantage).mean()
    critic_loss = F.mse_loss(critic(guests), rewards)
    loss = policy_loss + 0.5 * critic_loss - ENTROPY_BONUS * policy.entropy().mean()

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([*waiter.parameters(), *critic.parameters()], 1.0)
    optimizer.step()

    with torch.no_grad():
        for slow, fast in zip(slow_critic.parameters(), critic.parameters(), strict=True):
            slow.lerp_(fast, 0.05)
    grade_so_far += (rewards.mean().item() - grade_so_far) / min(step + 1, 20)
    step += 1
    if step % 40 == 0:
        print(f"{step:4d}: grade {grade_so_far:+.3f} critic {critic_loss.item():.3f} greedy {greedy_grade():+.3f}")

torch.save({"waiter": waiter.state_dict(), "critic": critic.state_dict()}, "menu.pt")
