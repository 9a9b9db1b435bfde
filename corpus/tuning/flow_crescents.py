"""Density of two crescents by coupling layers; the points are drawn anew in every step and there are no epochs."""

import math

import torch
from torch import nn

STEPS, BATCH, WIDTH, LAYERS = 260, 128, 48, 6


def crescents(n, generator=None):
    half = torch.randint(0, 2, (n,), generator=generator)
    angle = torch.rand(n, generator=generator) * math.pi
    sign = 1.0 - 2.0 * half
    points = torch.stack([angle.cos() * sign + half, angle.sin() * sign + 0.5 * half], dim=1)
    points = points + 0.08 * torch.randn(n, 2, generator=generator)
    return (points - torch.tensor([0.5, 0.25])) / torch.tensor([0.87, 0.5])


class Coupling(nn.Module):
    def __init__(self, swap):
        super().__init__()
        self.swap = swap
        self.net = nn.Sequential(
            nn.Linear(1, WIDTH), nn.LeakyReLU(0.1), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.1), nn.Linear(WIDTH, 2)
        )
        # each layer is the identity at first
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def parameters_of(self, kept):
        log_scale, shift = self.net(kept).chunk(2, dim=1)
        return 2.0 * torch.tanh(log_scale / 2.0), shift

    def forward(self, x):
        kept, moved = (x[:, 1:], x[:, :1]) if self.swap else (x[:, :1], x[:, 1:])
        log_scale, shift = self.parameters_of(kept)
        moved = moved * log_scale.exp() + shift
        parts = (moved, kept) if self.swap else (kept, moved)
        return torch.cat(parts, dim=1), log_scale.sum(dim=1)

    def inverse(self, z):
        kept, moved = (z[:, 1:], z[:, :1]) if self.swap else (z[:, :1], z[:, 1:])
        log_scale, shift = self.parameters_of(kept)
        moved = (moved - shift) * (-log_scale).exp()
        return torch.cat((moved, kept) if self.swap else (kept, moved), dim=1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(swap=i % 2 == 1) for i in range(LAYERS))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * (x**2).sum(dim=1) - math.log(2 * math.pi)

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, 2)
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


torch.manual_seed(40)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
held = crescents(1000, torch.Generator().manual_seed(99))

for step in range(1, STEPS + 1):
    loss = -flow.log_prob(crescents(BATCH)).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    if step % 65 == 0:
        with torch.no_grad():
            nats = -flow.log_prob(held).mean().item()
        spread = flow.sample(500).std(dim=0)
        print(f"{step:4d} loss {loss.item():.3f} held-out {nats:.3f} norm {norm:.2f} spread {spread.tolist()}")

with torch.no_grad():
    z = held
    for layer in flow.layers:
        z, _ = layer(z)
    for layer in reversed(flow.layers):
        z = layer.inverse(z)
print("largest error of the inverse:", (z - held).abs().max().item())
