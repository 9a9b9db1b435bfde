"""DQN with a replay buffer and a target network; several forwards of one state to an update."""

import copy
import random
import sys
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(7)
random.seed(7)
online = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 3))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
memory = deque(maxlen=2000)


def act(state, chance):
    if random.random() < chance:
        return random.randrange(3)
    with torch.no_grad():
        return int(online(state).argmax())


def world(state, action):
    after = (state + torch.tensor([0.05 * (action - 1), 0.01, -0.01])).clamp(-1, 1)
    return after, 1.0 - float(after[0].abs()), bool(after[0].abs() > 0.95)


state = torch.zeros(3)
for step in range(updates + 16):
    for _ in range(4):
        action = act(state, max(0.1, 1 - step / 60))
        after, reward, over = world(state, action)
        memory.append((state, action, reward, after, over))
        state = torch.rand(3) - 0.5 if over else after
    if len(memory) < 68:
        continue
    states, actions, rewards, afters, overs = zip(*random.sample(memory, 32), strict=True)
    chosen = online(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
    with torch.no_grad():
        best = target(torch.stack(afters)).max(1).values
    aim = torch.tensor(rewards) + 0.97 * best * (1 - torch.tensor(overs).float())
    loss = F.smooth_l1_loss(chosen, aim)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        target.load_state_dict(online.state_dict())
        print(step, loss.item(), reward)
