"""Population-based training: six small nets with rates of their own; now and then the worst copy the best."""

import copy
import random

import numpy as np
import torch
from torch import nn


class Member:
    def __init__(self, number, rate, noise):
        self.number, self.rate, self.noise = number, rate, noise
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=rate)
        self.score = -float("inf")

    def train(self, x, y, steps):
        self.net.train()
        for _ in range(steps):
            rows = np.random.randint(0, len(x), 32)
            inputs = x[rows] + self.noise * torch.randn(32, 6)
            loss = nn.functional.mse_loss(self.net(inputs).squeeze(-1), y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def evaluate(self, x, y):
        self.net.eval()
        with torch.no_grad():
            self.score = -nn.functional.mse_loss(self.net(x).squeeze(-1), y).item()

    def copy_from(self, other):
        """Takes weights and moments of the better one, and its settings a little changed."""
        self.net.load_state_dict(other.net.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(other.optimizer.state_dict()))
        self.rate = other.rate * random.choice([0.8, 1.25])
        self.noise = other.noise * random.choice([0.8, 1.25])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate


def table(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] - 0.3 * np.abs(x[:, 3]) + 0.1 * rng.normal(size=n)
    y = (y + 0.24) / 0.87
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def main():
    random.seed(20)
    np.random.seed(20)
    torch.manual_seed(20)
    x_train, y_train = table(500, 1)
    x_val, y_val = table(150, 2)
    x_test, y_test = table(150, 3)
    herd = [Member(i, 10 ** random.uniform(-3.3, -1.7), random.uniform(0.0, 0.2)) for i in range(6)]
    for generation in range(5):
        for member in herd:
            member.train(x_train, y_train, steps=15)
            member.evaluate(x_val, y_val)
        herd.sort(key=lambda m: m.score, reverse=True)
        print(f"generation {generation}: " + " ".join(f"{m.number}:{-m.score:.3f}({m.rate:.4f})" for m in herd))
        if generation < 4:
            for good, bad in zip(herd[:2], herd[-2:], strict=True):
                bad.copy_from(good)
    best = herd[0]
    best.evaluate(x_test, y_test)
    print(f"member {best.number} on test: mse {-best.score:.3f}")


if __name__ == "__main__":
    main()
