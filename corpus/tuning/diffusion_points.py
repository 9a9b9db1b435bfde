"""Denoising diffusion of points: random noise levels in every step, mean squared error of the noise."""

import torch
from torch import nn

torch.manual_seed(30)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(20, 16)
        self.net = nn.Sequential(nn.Linear(2 + 16, 48), nn.SiLU(), nn.Linear(48, 2))
        nn.init.zeros_(self.net[2].weight)

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], dim=1))


model = Denoiser()
ema = {name: value.clone() for name, value in model.state_dict().items()}
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
keep = torch.linspace(0.99, 0.1, 20)
for _ in range(14):
    angle = torch.rand(32) * 6.283
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    t, noise = torch.randint(0, 20, (32,)), torch.randn(32, 2)
    noisy = keep[t, None].sqrt() * x + (1 - keep[t, None]).sqrt() * noise
    loss = (model(noisy, t) - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        ema[name].lerp_(value, 0.05)
print(loss.item())
