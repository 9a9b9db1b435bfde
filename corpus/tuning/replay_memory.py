"""DQN on a small cliff walk: a ring of past moves, a copy of the network for targets, epsilon greedy."""

import copy
import random

import numpy as np
import torch
from torch import nn

ROWS, COLS, MOVES = 3, 4, ((-1, 0), (0, 1), (1, 0), (0, -1))


class Cliff:
    """From the left lower corner to the right lower one; the cells between are a cliff."""

    def reset(self):
        self.at, self.time = (ROWS - 1, 0), 0
        return self.view()

    def view(self):
        board = np.zeros((ROWS, COLS), dtype=np.float32)
        board[self.at] = 1.0
        return board.ravel()

    def step(self, action):
        dr, dc = MOVES[action]
        r, c = self.at
        self.at = (min(max(r + dr, 0), ROWS - 1), min(max(c + dc, 0), COLS - 1))
        self.time += 1
        goal = self.at == (ROWS - 1, COLS - 1)
        fell = self.at[0] == ROWS - 1 and 0 < self.at[1] < COLS - 1
        reward = 1.0 if goal else -1.0 if fell else -0.02
        return self.view(), reward, goal or fell, self.time >= 30


class Ring:
    def __init__(self, size, width):
        self.state = np.zeros((size, width), dtype=np.float32)
        self.after = np.zeros((size, width), dtype=np.float32)
        self.action = np.zeros(size, dtype=np.int64)
        self.reward = np.zeros(size, dtype=np.float32)
        self.ended = np.zeros(size, dtype=np.float32)
        self.size, self.next, self.count = size, 0, 0

    def add(self, state, action, reward, after, ended):
        i = self.next
        self.state[i], self.action[i], self.reward[i], self.after[i], self.ended[i] = (
            state,
            action,
            reward,
            after,
            ended,
        )
        self.next, self.count = (i + 1) % self.size, min(self.count + 1, self.size)

    def sample(self, n, rng):
        rows = rng.integers(0, self.count, n)
        parts = (self.state, self.action, self.reward, self.after, self.ended)
        return [torch.from_numpy(part[rows]) for part in parts]


def greedy(net, view):
    with torch.no_grad():
        return int(net(torch.from_numpy(view)).argmax())


def score(net):
    """The sum of rewards of one walk without chance."""
    world, total, over = Cliff(), 0.0, False
    view = world.reset()
    while not over:
        view, reward, ended, late = world.step(greedy(net, view))
        total, over = total + reward, ended or late
    return total


random.seed(2)
torch.manual_seed(2)
rng = np.random.default_rng(2)
world, ring = Cliff(), Ring(2000, ROWS * COLS)
online = nn.Sequential(nn.Linear(ROWS * COLS, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, len(MOVES)))
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
view, step, gamma = world.reset(), 0, 0.95

while step < 1600:
    step += 1
    epsilon = max(0.05, 1.0 - step / 1000)
    action = random.randrange(len(MOVES)) if random.random() < epsilon else greedy(online, view)
    after, reward, ended, late = world.step(action)
    ring.add(view, action, reward, after, ended)  # a walk that only took too long has not ended: its value goes on
    view = world.reset() if ended or late else after
    if step < 200 or step % 2:
        continue
    state, actions, rewards, following, final = ring.sample(32, rng)
    with torch.no_grad():
        best = target(following).max(dim=1).values
        wanted = rewards + gamma * (1 - final) * best
    value = online(state).gather(1, actions[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    if step % 100 == 0:
        target.load_state_dict(online.state_dict())
    if step % 400 == 0:
        print(f"step {step}: loss {loss.item():.4f}, epsilon {epsilon:.2f}, greedy walk {score(online):.2f}")
