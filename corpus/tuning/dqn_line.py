"""Deep Q-learning on a line of cells: replay memory, a target network, Huber loss."""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(8)
torch.manual_seed(8)
CELLS, GAMMA, BATCH = 9, 0.95, 32


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(CELLS, 32)
        self.layer2 = nn.Linear(32, 32)
        self.layer3 = nn.Linear(32, 2)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


def one_hot(cell):
    return F.one_hot(torch.tensor(cell), CELLS).float()


def move(cell, action):
    cell = max(0, min(CELLS - 1, cell + (1 if action else -1)))
    done = cell in (0, CELLS - 1)
    return cell, float(cell == CELLS - 1), done


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=500)


def select_action(cell, epsilon):
    if random.random() < epsilon:
        return random.randrange(2)
    with torch.no_grad():
        return int(policy_net(one_hot(cell).unsqueeze(0)).argmax(1))


def optimize_model():
    if len(memory) < BATCH:
        return
    cells, actions, rewards, afters, ends = zip(*random.sample(memory, BATCH), strict=True)
    state = torch.stack([one_hot(c) for c in cells])
    action = torch.tensor(actions).unsqueeze(1)
    reward, end = torch.tensor(rewards), torch.tensor(ends, dtype=torch.float)
    state_action_values = policy_net(state).gather(1, action).squeeze(1)
    with torch.no_grad():
        next_values = target_net(torch.stack([one_hot(c) for c in afters])).max(1).values
    expected = reward + GAMMA * (1 - end) * next_values
    loss = F.smooth_l1_loss(state_action_values, expected)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()


steps = 0
for episode in range(12):
    cell = random.randrange(1, CELLS - 1)
    for _ in range(20):
        action = select_action(cell, epsilon=max(0.1, 1 - episode / 8))
        after, reward, done = move(cell, action)
        memory.append((cell, action, reward, after, done))
        optimize_model()
        with torch.no_grad():
            for target, source in zip(target_net.parameters(), policy_net.parameters(), strict=True):
                target.mul_(0.99).add_(source, alpha=0.01)
        cell = after
        steps += 1
        if done:
            break
print(f"{steps} moves, {len(memory)} remembered")
