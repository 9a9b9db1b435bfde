"""DQN on a small cliff: a target network that lags behind, a memory of moves, and a greedy test."""

import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

ROWS, COLUMNS, LIMIT = 3, 5, 30
GAMMA, BATCH, LAG = 0.95, 64, 20


class Cliff:
    """From the lower left to the lower right corner; the squares between are the cliff."""

    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def reset(self):
        self.row, self.column, self.time = ROWS - 1, 0, 0
        return self.state()

    def state(self):
        square = torch.zeros(ROWS, COLUMNS)
        square[self.row, self.column] = 1.0
        return square.flatten()

    def step(self, action):
        down, right = self.moves[action]
        self.row = min(max(self.row + down, 0), ROWS - 1)
        self.column = min(max(self.column + right, 0), COLUMNS - 1)
        self.time += 1
        if self.row == ROWS - 1 and 0 < self.column < COLUMNS - 1:
            return self.state(), -1.0, True, False
        if self.row == ROWS - 1 and self.column == COLUMNS - 1:
            return self.state(), 1.0, True, False
        return self.state(), -0.02, False, self.time >= LIMIT


def make_net():
    return nn.Sequential(nn.Linear(ROWS * COLUMNS, 64), nn.ReLU(), nn.Linear(64, len(Cliff.moves)))


def act(net, state, epsilon):
    if random.random() < epsilon:
        return random.randrange(len(Cliff.moves))
    with torch.no_grad():
        return net(state.unsqueeze(0)).argmax(dim=1).item()


def learn(online, target, optimizer, memory):
    states, actions, rewards, following, ended = zip(*random.sample(memory, BATCH), strict=True)
    states, following = torch.stack(states), torch.stack(following)
    actions, rewards = torch.tensor(actions), torch.tensor(rewards)
    ended = torch.tensor(ended, dtype=torch.float32)
    values = online(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        goal = rewards + GAMMA * (1 - ended) * target(following).max(dim=1).values
    loss = F.smooth_l1_loss(values, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(online.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def greedy_return(net):
    world, total = Cliff(), 0.0
    state = world.reset()
    while True:
        state, reward, ended, cut = world.step(act(net, state, 0.0))
        total += reward
        if ended or cut:
            return total


def main():
    random.seed(6)
    torch.manual_seed(6)
    online, target = make_net(), make_net()
    target.load_state_dict(online.state_dict())
    target.eval()
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
    memory, world, steps, losses = deque(maxlen=2000), Cliff(), 0, deque(maxlen=50)
    for episode in range(90):
        state, done = world.reset(), False
        while not done:
            action = act(online, state, max(0.1, 1 - episode / 60))
            following, reward, ended, cut = world.step(action)
            memory.append((state, action, reward, following, ended))
            state, done = following, ended or cut
            steps += 1
            if len(memory) >= 200 and steps % 3 == 0:
                losses.append(learn(online, target, optimizer, memory))
            if steps % LAG == 0:
                target.load_state_dict(online.state_dict())
        if (episode + 1) % 30 == 0:
            loss = sum(losses) / max(1, len(losses))
            print(f"episode {episode + 1}: loss {loss:.4f} return {greedy_return(online):.2f}")
    torch.save({"online": online.state_dict(), "target": target.state_dict()}, "cliff.pt")


if __name__ == "__main__":
    main()
