"""Trains a double DQN from pixels of a grid world, with a replay memory on the host and a target network.

Needs numpy.
"""

import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class GridWorld:
    """Walk to the goal on a 44 x 44 picture; four moves."""

    size = 44

    def reset(self):
        self.me, self.goal, self.t = np.random.randint(0, 11, 2), np.random.randint(0, 11, 2), 0
        return self.frame()

    def frame(self):
        picture = np.zeros((2, self.size, self.size), dtype=np.uint8)
        for c, (y, x) in enumerate((self.me, self.goal)):
            picture[c, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4] = 255
        return picture

    def step(self, action):
        self.me = np.clip(self.me + [(-1, 0), (1, 0), (0, -1), (0, 1)][action], 0, 10)
        self.t += 1
        won = bool((self.me == self.goal).all())
        return self.frame(), 1.0 if won else -0.01, won, self.t >= 40


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 32, 5, stride=2)
        self.conv2 = nn.Conv2d(32, 64, 3, stride=2)
        self.value = nn.Sequential(nn.Linear(64 * 81, 256), nn.ReLU(), nn.Linear(256, 1))
        self.advantage = nn.Sequential(nn.Linear(64 * 81, 256), nn.ReLU(), nn.Linear(256, actions))

    def forward(self, x):
        x = x.to(torch.float32) / 255
        x = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True)


BATCH_SIZE, GAMMA, TAU, LR, START = 64, 0.99, 0.005, 1e-4, 80
env = GridWorld()
policy_net = DQN(4).to(device)
target_net = DQN(4).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(2000)
steps_done = 0


def select_action(state):
    global steps_done
    eps = 0.05 + 0.85 * np.exp(-1.0 * steps_done / 200)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(4)]], device=device, dtype=torch.long)


def optimize_model():
    if len(memory) < START:
        return None
    batch = Transition(*zip(*memory.sample(BATCH_SIZE), strict=True))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], device=device, dtype=torch.bool)
    non_final = torch.cat([s for s in batch.next_state if s is not None]).to(device)
    state_batch = torch.cat(batch.state).to(device)
    action_batch = torch.cat(batch.action).to(device)
    reward_batch = torch.cat(batch.reward).to(device)
    q = policy_net(state_batch).gather(1, action_batch)
    next_values = torch.zeros(BATCH_SIZE, device=device)
    with torch.no_grad():
        best = policy_net(non_final).argmax(1, keepdim=True)
        next_values[non_final_mask] = target_net(non_final).gather(1, best).squeeze(1)
    expected = next_values * GAMMA + reward_batch
    loss = nn.SmoothL1Loss()(q, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


updates = 0
for episode in range(20):
    state = torch.from_numpy(env.reset()).unsqueeze(0)
    done, total = False, 0.0
    while not done:
        action = select_action(state.to(device))
        frame, reward, terminated, truncated = env.step(action.item())
        done = terminated or truncated
        next_state = None if terminated else torch.from_numpy(frame).unsqueeze(0)
        memory.push(state, action.cpu(), next_state, torch.tensor([reward]))
        state = next_state
        total += reward
        loss = optimize_model()
        if loss is not None:
            updates += 1
            target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
            for key in policy_state:
                target_state[key] = policy_state[key] * TAU + target_state[key] * (1 - TAU)
            target_net.load_state_dict(target_state)
            if updates % 4 == 0:
                print(f"update {updates} loss {loss:.5f}")
        if updates >= 16:
            done = True
    print(f"episode {episode} reward {total:.2f}")
    if updates >= 16:
        break
