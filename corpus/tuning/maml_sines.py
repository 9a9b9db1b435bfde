"""Learning to learn sines: an inner step for each task, and the outer step differentiates through it."""

import math

import torch
from torch import nn
from torch.func import functional_call


def task(g):
    height = 0.5 + 2 * torch.rand((), generator=g)
    phase = math.pi * torch.rand((), generator=g)

    def sample(count):
        x = 6 * torch.rand(count, 1, generator=g) - 3
        return x, height * torch.sin(x + phase)

    return sample


def main(tasks=4, steps=30, inner_rate=0.05):
    torch.manual_seed(312)
    g = torch.Generator().manual_seed(5)
    net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    outer = torch.optim.Adam(net.parameters(), lr=2e-3)
    mse = nn.MSELoss()
    for step in range(steps):
        outer.zero_grad()
        total = 0.0
        for _ in range(tasks):
            sample = task(g)
            x, y = sample(10)
            weights = dict(net.named_parameters())
            inner = mse(functional_call(net, weights, (x,)), y)
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            tuned = {name: w - inner_rate * s for (name, w), s in zip(weights.items(), slopes, strict=True)}
            x, y = sample(10)
            loss = mse(functional_call(net, tuned, (x,)), y) / tasks
            loss.backward()
            total += loss.item()
        outer.step()
        if step % 10 == 9:
            print(step + 1, total)


if __name__ == "__main__":
    main()
