"""Deep Q-learning on a five by five grid with a wall: a replay buffer, a target network, exploration that fades."""

import argparse
import random
from collections import deque

import torch
from torch import nn

SIZE, GOAL = 5, (4, 4)
WALL = {(1, 1), (2, 1), (3, 1), (1, 3), (2, 3)}
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Grid:
    def reset(self):
        self.place, self.moves = (0, 0), 0
        return self.place

    def step(self, action):
        row, column = self.place[0] + MOVES[action][0], self.place[1] + MOVES[action][1]
        if 0 <= row < SIZE and 0 <= column < SIZE and (row, column) not in WALL:
            self.place = (row, column)
        self.moves += 1
        reached = self.place == GOAL
        return self.place, 1.0 if reached else -0.05, reached, self.moves >= 40


class Replay:
    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def push(self, *transition):
        self.items.append(transition)

    def sample(self, size):
        place, action, reward, after, done = zip(*random.sample(self.items, size), strict=True)
        return (
            torch.tensor(place),
            torch.tensor(action),
            torch.tensor(reward),
            torch.tensor(after),
            torch.tensor(done, dtype=torch.float32),
        )


class QNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * SIZE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.state = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, len(MOVES))

    def forward(self, place):
        x = nn.functional.one_hot(place, SIZE).flatten(1).float()
        x = self.body(x)
        advantage = self.advantage(x)
        return self.state(x) + advantage - advantage.mean(dim=1, keepdim=True)


def act(net, place, epsilon):
    if random.random() < epsilon:
        return random.randrange(len(MOVES))
    with torch.no_grad():
        return int(net(torch.tensor([place])).argmax())


@torch.no_grad()
def bootstrap(target, reward, after, done, gamma):
    return reward + gamma * (1 - done) * target(after).amax(dim=1)


def walk(net):
    """The return of the greedy policy."""
    grid, total, done, late = Grid(), 0.0, False, False
    place = grid.reset()
    while not (done or late):
        place, reward, done, late = grid.step(act(net, place, 0.0))
        total += reward
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--every", type=int, default=3, help="moves between updates")
    parser.add_argument("--sync", type=int, default=30, help="updates between copies to the target")
    args = parser.parse_args()
    random.seed(12)
    torch.manual_seed(12)

    net, target = QNet(), QNet()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=args.rate)
    replay, grid = Replay(5000), Grid()
    best, best_weights = float("-inf"), None
    updates, total, place = 0, 0.0, grid.reset()
    for step in range(1, args.steps + 1):
        epsilon = max(0.1, 1.0 - 1.5 * step / args.steps)
        action = act(net, place, epsilon)
        after, reward, done, late = grid.step(action)
        replay.push(place, action, reward, after, done)
        total += reward
        place = grid.reset() if done or late else after
        if len(replay.items) < 5 * args.batch or step % args.every:
            continue
        states, actions, rewards, afters, dones = replay.sample(args.batch)
        wanted = bootstrap(target, rewards, afters, dones, args.gamma)
        guessed = net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(guessed, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        updates += 1
        if updates % args.sync == 0:
            target.load_state_dict(net.state_dict())
            score = walk(net)
            if score > best:
                best, best_weights = score, [p.detach().clone() for p in net.parameters()]
            print(f"step {step}: loss {loss.item():.4f}, greedy return {score:.2f}, reward a move {total / step:.3f}")
    with torch.no_grad():
        for parameter, kept in zip(net.parameters(), best_weights, strict=True):
            parameter.copy_(kept)
    print(f"best {walk(net):.2f}")


if __name__ == "__main__":
    main()
