"""First step towards the exit of a maze: mazes come sorted from easy to hard, on purpose."""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 7
STEPS = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def distances(walls, goal):
    """How many steps each free field is from the goal."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        r, c = queue.popleft()
        for dr, dc in STEPS:
            n = (r + dr, c + dc)
            if 0 <= n[0] < SIDE and 0 <= n[1] < SIDE and n not in walls and n not in found:
                found[n] = found[(r, c)] + 1
                queue.append(n)
    return found


def draw_maze(rng):
    """Walls, start, goal and the one first step that is best; None if there is none or more than one."""
    fields = [(r, c) for r in range(SIDE) for c in range(SIDE)]
    walls = frozenset(rng.sample(fields, rng.randint(6, 14)))
    start, goal = rng.sample([f for f in fields if f not in walls], 2)
    found = distances(walls, goal)
    if start not in found:
        return None
    best = [i for i, (dr, dc) in enumerate(STEPS) if found.get((start[0] + dr, start[1] + dc), 99) < found[start]]
    return (walls, start, goal, best[0], found[start]) if len(best) == 1 else None


def mazes(count, rng, taken):
    """Pictures, first steps and lengths of the way, of mazes that were not drawn before."""
    pictures, steps, lengths = torch.zeros(count, 3, SIDE, SIDE), [], []
    while len(steps) < count:
        maze = draw_maze(rng)
        if maze is None or maze in taken:
            continue
        taken.add(maze)
        walls, start, goal, step, length = maze
        for channel, cells in enumerate((walls, [start], [goal])):
            for r, c in cells:
                pictures[len(steps), channel, r, c] = 1.0
        steps.append(step)
        lengths.append(length)
    return pictures, torch.tensor(steps), torch.tensor(lengths)


class Walker(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.again = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.out = nn.Sequential(nn.Flatten(), nn.Linear(width * SIDE * SIDE, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, picture):
        x = F.relu(self.enter(picture))
        for _ in range(3):  # the same layer, as often as a wave is to travel
            x = F.relu(self.norm(x + self.again(x)))
        return self.out(x)


def accuracy(model, pictures, steps):
    model.eval()
    with torch.no_grad():
        parts = zip(pictures.split(100), steps.split(100), strict=True)
        right = sum((model(p).argmax(1) == s).sum().item() for p, s in parts)
    model.train()
    return right / len(steps)


def main():
    random.seed(0)
    torch.manual_seed(64)
    rng, taken = random.Random(65), set()
    pictures, steps, lengths = mazes(1000, rng, taken)
    test_pictures, test_steps, _ = mazes(150, rng, taken)
    easy_first = torch.argsort(lengths, stable=True)

    model = Walker()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch, share in enumerate([0.3, 0.6, 1.0, 1.0, 1.0]):
        pool = easy_first[: int(share * len(easy_first))]
        total = 0.0
        for rows in pool.split(25):  # short ways first within the epoch too
            loss = F.cross_entropy(model(pictures[rows]), steps[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(
            f"epoch {epoch}: {len(pool)} mazes, ways up to {lengths[pool].max()} steps, "
            f"loss {total / len(pool):.3f}, right {accuracy(model, test_pictures, test_steps):.3f}"
        )


if __name__ == "__main__":
    main()
