"""Learns where to begin: inner steps by autograd.grad on functional weights, the outer loss through all of them."""

import torch
from torch import nn
from torch.func import functional_call


class Sine(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


def task(g):
    phase, height = 3 * torch.rand((), generator=g), 0.5 + torch.rand((), generator=g)

    def draw(n):
        x = 6 * torch.rand(n, 1, generator=g) - 3
        return x, height * torch.sin(x + phase)

    return draw


def adapt(model, weights, draw, steps=2, rate=0.05):
    for _ in range(steps):
        x, y = draw(10)
        inner = nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        weights = {name: w - rate * s for (name, w), s in zip(weights.items(), slopes, strict=True)}
    return weights


if __name__ == "__main__":
    torch.manual_seed(21)
    g = torch.Generator().manual_seed(22)
    model = Sine()
    outer_opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(30):
        outer = 0.0
        for _ in range(4):
            draw = task(g)
            adapted = adapt(model, dict(model.named_parameters()), draw)
            x, y = draw(10)
            outer = outer + nn.functional.mse_loss(functional_call(model, adapted, (x,)), y) / 4
        outer_opt.zero_grad()
        outer.backward()
        outer_opt.step()
        if step % 10 == 9:
            print(step + 1, outer.item())
