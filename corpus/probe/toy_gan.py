"""A GAN of points on a ring: two optimizers take turns, and no target belongs to a sample."""

import math

import torch
from torch import nn

torch.manual_seed(2)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
judge = nn.BCEWithLogitsLoss()
for step in range(200):
    angle = 2 * math.pi * torch.rand(64)
    real = torch.stack([angle.cos(), angle.sin()], 1)
    fake = generator(torch.randn(64, 4))
    loss_critic = judge(critic(real), torch.ones(64, 1)) + judge(critic(fake.detach()), torch.zeros(64, 1))
    of_critic.zero_grad()
    loss_critic.backward()
    of_critic.step()
    loss_generator = judge(critic(fake), torch.ones(64, 1))
    of_generator.zero_grad()
    loss_generator.backward()
    of_generator.step()
    if step % 50 == 49:
        with torch.no_grad():
            radius = generator(torch.randn(500, 4)).norm(dim=1)
        print(f"step {step} critic {loss_critic.item():.3f} generator {loss_generator.item():.3f} radius {radius.mean():.3f}")
