"""Denoising diffusion of points, and a few samples drawn step by step."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(20)
betas = torch.linspace(1e-3, 0.1, 40)
kept = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.times = nn.Embedding(40, 32)
        self.body = nn.Sequential(nn.Linear(34, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, x, t):
        return self.body(torch.cat([x, self.times(t)], dim=1))


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(updates):
    angle = torch.rand(96) * 3.1416
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    t, noise = torch.randint(0, 40, (96,)), torch.randn(96, 2)
    noisy = kept[t].sqrt()[:, None] * x + (1 - kept[t]).sqrt()[:, None] * noise
    loss = F.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
model.eval()
with torch.no_grad():
    x = torch.randn(16, 2)
    for t in reversed(range(40)):
        noise = model(x, torch.full((16,), t))
        x = (x - betas[t] / (1 - kept[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn(16, 2)
print("samples", x.norm(dim=1).mean().item())
