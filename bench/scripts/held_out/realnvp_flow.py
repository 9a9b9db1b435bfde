"""Trains a normalising flow (affine couplings and actnorm) on points of two moons in many dimensions."""

import math

import torch
from torch import nn

torch.manual_seed(0)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")

DIM, HIDDEN, LAYERS, BATCH = 16, 128, 8, 1024


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("initialised", torch.tensor(False))

    def forward(self, x):
        if not self.initialised:
            with torch.no_grad():
                self.bias.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).clamp(min=1e-3).log())
                self.initialised.fill_(True)
        return (x + self.bias) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(dim // 2, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        y = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return y, s.sum(1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList()
        for i in range(LAYERS):
            self.steps.append(ActNorm(DIM))
            self.steps.append(Coupling(DIM, HIDDEN, flip=bool(i % 2)))
        self.base = torch.distributions.MultivariateNormal(torch.zeros(DIM), torch.eye(DIM))

    def log_prob(self, x):
        log_det = torch.zeros(len(x))
        for step in self.steps:
            x, d = step(x)
            log_det = log_det + d
        return self.base.log_prob(x) + log_det


def moons(n):
    angle = torch.rand(n) * math.pi
    upper = (torch.rand(n) < 0.5).float()
    x = torch.cos(angle) * (2 * upper - 1) + (1 - upper)
    y = torch.sin(angle) * (2 * upper - 1) + 0.5 * (1 - upper)
    plane = torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)
    return torch.cat([plane, torch.randn(n, DIM - 2) * 0.3 + plane.repeat(1, DIM // 2 - 1)], dim=1)


flow = Flow()
opt = torch.optim.Adamax(flow.parameters(), lr=1e-3)
for it in range(10):
    loss = -flow.log_prob(moons(BATCH)).mean()
    if torch.isnan(loss) or torch.isinf(loss):
        print("skipping a batch that is not finite")
        continue
    opt.zero_grad()
    loss.backward()
    grad = nn.utils.clip_grad_value_(flow.parameters(), 5.0)
    opt.step()
    bits = loss.item() / (DIM * math.log(2))
    print(f"{it:3d} nll {loss.item():8.4f} bits/dim {bits:6.3f}")
