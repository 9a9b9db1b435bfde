"""Soft Q-learning on a ring: a slow copy gives the targets, memories are replayed, actions sampled."""

import copy
import random
from collections import deque

import torch
from torch import nn

SPOTS, GOAL = 9, 4
torch.manual_seed(308)
random.seed(308)

q_net = nn.Sequential(nn.Embedding(SPOTS, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
target_net = copy.deepcopy(q_net)
for parameter in target_net.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.Adam(q_net.parameters(), lr=3e-3)
memory = deque(maxlen=500)


def soft_value(values, heat=0.1):
    return heat * torch.logsumexp(values / heat, dim=-1)


spot = 0
losses = []
for step in range(150):
    with torch.no_grad():
        action = torch.distributions.Categorical(logits=q_net(torch.tensor(spot)) / 0.1).sample().item()
    after = (spot + action - 1) % SPOTS
    reward = float(after == GOAL)
    memory.append((spot, action, reward, after))
    spot = random.randrange(SPOTS) if reward else after
    if step < 30 or step % 3:
        continue
    batch = random.sample(memory, 24)
    state, taken, rewards, following = (torch.tensor(column) for column in zip(*batch, strict=True))
    value = q_net(state).gather(1, taken[:, None]).squeeze(1)
    with torch.no_grad():
        target = rewards + 0.9 * soft_value(target_net(following))
    loss = nn.functional.smooth_l1_loss(value, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    for slow, fast in zip(target_net.parameters(), q_net.parameters(), strict=True):
        slow.data.lerp_(fast.data, 0.05)
print("loss", losses[0], losses[-1])
