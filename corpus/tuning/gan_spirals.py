"""Spirals forged: two networks, two optimizers, the forger learns through the judge."""

import math

import torch
from torch import nn

torch.manual_seed(301)


def spirals(count):
    t = torch.rand(count)
    return torch.stack([t * torch.cos(4 * math.pi * t), t * torch.sin(4 * math.pi * t)], dim=1)


forger = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(32, 1))
forger_opt = torch.optim.Adam(forger.parameters(), lr=1e-3, betas=(0.5, 0.999))
judge_opt = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)

for step in range(40):
    real = spirals(32)
    fake = forger(torch.randn(32, 4))

    judge_opt.zero_grad()
    on_real = bce(judge(real), 0.9 * ones)
    on_real.backward()
    on_fake = bce(judge(fake.detach()), zeros)
    on_fake.backward()
    judge_opt.step()

    forger_opt.zero_grad()
    fooled = bce(judge(fake), ones)
    fooled.backward()
    forger_opt.step()
    if step % 10 == 9:
        print(f"{step + 1}: judge {(on_real + on_fake).item():.3f} forger {fooled.item():.3f}")

forger.eval()
with torch.no_grad():
    radius = forger(torch.randn(64, 4)).norm(dim=1)
print(f"radii from {radius.min():.2f} to {radius.max():.2f}")
