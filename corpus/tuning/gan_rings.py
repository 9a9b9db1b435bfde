"""A GAN of points on a ring: two networks, two optimizers, the discriminator's loss in two backward passes."""

import torch
from torch import nn

torch.manual_seed(3)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))

for _ in range(12):
    angle = torch.rand(32) * 6.283
    real = torch.stack([angle.cos(), angle.sin()], dim=1)
    discriminator.zero_grad()
    loss_real = criterion(discriminator(real), torch.ones(32, 1))
    loss_real.backward()
    fake = generator(torch.randn(32, 4))
    loss_fake = criterion(discriminator(fake.detach()), torch.zeros(32, 1))
    loss_fake.backward()
    optimizer_d.step()

    generator.zero_grad()
    loss_g = criterion(discriminator(fake), torch.ones(32, 1))
    loss_g.backward()
    optimizer_g.step()
print(loss_real.item(), loss_fake.item(), loss_g.item())
