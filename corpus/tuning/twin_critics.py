"""Control of a sliding block: an actor, two critics, slow copies of all, the actor updated every second time."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(36)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, o))


def world(state, push):
    """Position and speed after a push; best is to rest in the middle."""
    speed = 0.9 * state[:, 1:] + 0.2 * push
    position = (state[:, :1] + 0.2 * speed).clamp(-2, 2)
    after = torch.cat([position, speed], 1)
    return after, -(position.square() + 0.1 * push.square())


actor, critics = nn.Sequential(mlp(2, 1), nn.Tanh()), nn.ModuleList([mlp(3, 1), mlp(3, 1)])
slow_actor = copy.deepcopy(actor).requires_grad_(False)
slow_critics = copy.deepcopy(critics).requires_grad_(False)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam(critics.parameters(), lr=3e-3)
state = torch.randn(64, 2)
memory = []
for step in range(45):
    with torch.no_grad():
        push = (actor(state) + 0.3 * torch.randn(64, 1)).clamp(-1, 1)
        after, reward = world(state, push)
    memory.append((state, push, reward, after))
    state = torch.where(torch.rand(64, 1) < 0.05, torch.randn(64, 2), after)

    s, a, r, n = (torch.cat(part) for part in zip(*memory[-20:], strict=True))
    rows = torch.randint(len(s), (64,))
    s, a, r, n = s[rows], a[rows], r[rows], n[rows]
    with torch.no_grad():
        next_push = (slow_actor(n) + (0.1 * torch.randn(64, 1)).clamp(-0.2, 0.2)).clamp(-1, 1)
        value = torch.min(*(critic(torch.cat([n, next_push], 1)) for critic in slow_critics))
        target = r + 0.95 * value
    critic_loss = sum(F.mse_loss(critic(torch.cat([s, a], 1)), target) for critic in critics)
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()

    if step % 2:
        actor_loss = -critics[0](torch.cat([s, actor(s)], 1)).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        with torch.no_grad():
            for slow, fast in ((slow_actor, actor), (slow_critics, critics)):
                for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                    old.lerp_(new, 0.05)
    if step % 15 == 14:
        print(step + 1, critic_loss.item(), actor_loss.item())
