"""A GAN of points on a ring: two networks, two optimizers."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(3)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
for step in range(updates // 2):
    angle = torch.rand(64) * 6.2832
    real = torch.stack([angle.cos(), angle.sin()], dim=1)
    fake = generator(torch.randn(64, 8))
    loss_critic = F.binary_cross_entropy_with_logits(critic(real), ones)
    loss_critic = loss_critic + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
    of_critic.zero_grad()
    loss_critic.backward()
    of_critic.step()
    loss_generator = F.binary_cross_entropy_with_logits(critic(fake), ones)
    of_generator.zero_grad()
    loss_generator.backward()
    of_generator.step()
    if step % 5 == 0:
        print(step, loss_critic.item(), loss_generator.item())
with torch.no_grad():
    print("radius", generator(torch.randn(256, 8)).norm(dim=1).mean().item())
