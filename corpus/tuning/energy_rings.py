"""An energy-based model of points on rings: contrastive divergence, negatives by Langevin steps from a buffer."""

import math
import random

import torch
import torch.nn as nn


def rings(n):
    radius = torch.where(torch.rand(n) < 0.5, 0.7, 1.5) + 0.06 * torch.randn(n)
    angle = torch.rand(n) * 2 * math.pi
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


class Energy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = nn.functional.silu(layer(x))
        return self.layers[-1](x).squeeze(-1)


def langevin(energy, x, steps=12, size=0.02):
    """Walk downhill with noise; the weights get no gradient from it."""
    for p in energy.parameters():
        p.requires_grad_(False)
    x = x.detach()
    for _ in range(steps):
        x.requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        noise = math.sqrt(2 * size) * 0.5 * torch.randn_like(x)
        x = (x.detach() - size * slope.clamp(-5, 5) + noise).clamp(-3, 3)
    for p in energy.parameters():
        p.requires_grad_(True)
    return x.detach()


class Buffer:
    def __init__(self, size):
        self.points = torch.rand(size, 2) * 4 - 2

    def draw(self, n):
        self.rows = torch.tensor(random.sample(range(len(self.points)), n))
        fresh = torch.rand(n, 1) < 0.1
        return torch.where(fresh, torch.rand(n, 2) * 4 - 2, self.points[self.rows])

    def put(self, x):
        self.points[self.rows] = x


def main(steps=150, batch=64):
    random.seed(0)
    torch.manual_seed(0)
    energy = Energy()
    buffer = Buffer(800)
    opt = torch.optim.Adam(energy.parameters(), lr=2e-3, betas=(0.5, 0.99))
    held = rings(500)
    for step in range(steps):
        real = rings(batch)
        fake = langevin(energy, buffer.draw(batch))
        buffer.put(fake)

        e_real, e_fake = energy(real), energy(fake)
        contrast = e_real.mean() - e_fake.mean()
        penalty = 0.1 * (e_real.pow(2).mean() + e_fake.pow(2).mean())
        opt.zero_grad()
        (contrast + penalty).backward()
        opt.step()

        if (step + 1) % 50 == 0:
            with torch.no_grad():
                uniform = energy(torch.rand(500, 2) * 4 - 2).mean()
                gap = (uniform - energy(held).mean()).item()
            print(f"{step + 1}: contrast {contrast.item():+.3f} gap to uniform points {gap:.3f}")


if __name__ == "__main__":
    main()
