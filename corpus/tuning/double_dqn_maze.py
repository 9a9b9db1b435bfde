"""Double Q-learning in a small maze: an agent object, replay in tensors, a target network copied now and then."""

import random

import torch
from torch import nn

WALLS = {(1, 1), (1, 2), (3, 1), (3, 3)}
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
SIZE, GOAL = 5, (4, 4)


class Maze:
    def reset(self):
        self.at, self.moves = (random.randrange(2), 0), 0
        return self.observe()

    def observe(self):
        row, col = self.at
        return torch.tensor([row / 2 - 1, col / 2 - 1, *[float(self.open(d)) for d in MOVES]])

    def open(self, way):
        row, col = self.at[0] + way[0], self.at[1] + way[1]
        return 0 <= row < SIZE and 0 <= col < SIZE and (row, col) not in WALLS

    def step(self, action):
        if self.open(MOVES[action]):
            self.at = (self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1])
        self.moves += 1
        done = self.at == GOAL
        return self.observe(), 1.0 if done else -0.02, done, self.moves >= 40


class Replay:
    def __init__(self, room):
        self.seen, self.room, self.filled = [torch.zeros(room, n) for n in (6, 1, 1, 6, 1)], room, 0

    def add(self, *items):
        for store, item in zip(self.seen, items, strict=True):
            store[self.filled % self.room] = torch.as_tensor(item, dtype=torch.float32)
        self.filled += 1

    def sample(self, n):
        rows = torch.randint(min(self.filled, self.room), (n,))
        return [store[rows] for store in self.seen]


class Agent:
    def __init__(self, gamma=0.9, lr=3e-3):
        self.q, self.target = self.network(), self.network()
        self.target.load_state_dict(self.q.state_dict())
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma, self.learned = gamma, 0

    @staticmethod
    def network():
        return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    @torch.no_grad()
    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        return self.q(state).argmax().item()

    def learn(self, replay):
        state, action, reward, after, done = replay.sample(32)
        chosen = self.q(state).gather(1, action.long())
        with torch.no_grad():
            best = self.q(after).argmax(1, keepdim=True)
            future = self.target(after).gather(1, best)
        wanted = reward + self.gamma * (1 - done) * future
        loss = nn.functional.smooth_l1_loss(chosen, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 0.1)
        self.optimizer.step()
        self.learned += 1
        if self.learned % 20 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()


def main():
    random.seed(19)
    torch.manual_seed(19)
    maze, agent, replay = Maze(), Agent(), Replay(400)
    for episode in range(12):
        state, total, loss = maze.reset(), 0.0, float("nan")
        for tick in range(40):
            action = agent.act(state, epsilon=max(0.1, 1 - episode / 8))
            after, reward, done, late = maze.step(action)
            replay.add(state, [action], [reward], after, [float(done)])
            state, total = after, total + reward
            if replay.filled >= 64 and tick % 3 == 0:
                loss = agent.learn(replay)
            if done or late:
                break
        print(f"episode {episode}: reward {total:.2f}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
