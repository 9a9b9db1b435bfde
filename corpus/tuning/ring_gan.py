"""A generative adversarial network for eight blobs on a ring."""

import math

import torch
import torch.nn as nn

torch.manual_seed(8)

# ---- settings
noise_size = 8
batch_size = 64
epochs = 6
blobs = 8
spread = 0.08

# ---- data
angles = torch.arange(blobs) * (2 * math.pi / blobs)
centres = torch.stack([angles.cos(), angles.sin()], dim=1)
data = centres[torch.randint(0, blobs, (1920,))] + spread * torch.randn(1920, 2)
loader = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True)

# ---- networks
generator = nn.Sequential(
    nn.Linear(noise_size, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 2),
)
discriminator = nn.Sequential(
    nn.Linear(2, 64),
    nn.LeakyReLU(0.2),
    nn.Linear(64, 64),
    nn.LeakyReLU(0.2),
    nn.Linear(64, 1),
)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
test_noise = torch.randn(400, noise_size)

# ---- training
for epoch in range(epochs):
    generator.train()
    sum_d = sum_g = 0.0
    for real in loader:
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        # the discriminator tells real points from generated ones
        fake = generator(torch.randn(len(real), noise_size)).detach()
        loss_d = bce(discriminator(real), ones) + bce(discriminator(fake), zeros)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        # the generator wants its points to be taken for real
        fake = generator(torch.randn(len(real), noise_size))
        loss_g = bce(discriminator(fake), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()

        sum_d += loss_d.item()
        sum_g += loss_g.item()

    # how many blobs are hit, and how far the points are from the nearest one
    generator.eval()
    with torch.no_grad():
        points = generator(test_noise)
    distance, nearest = torch.cdist(points, centres).min(dim=1)
    hit = nearest[distance < 3 * spread].unique().numel()
    print(
        f"epoch {epoch}: d {sum_d / len(loader):.3f}  g {sum_g / len(loader):.3f}  "
        f"blobs {hit}/{blobs}  distance {distance.mean().item():.3f}"
    )
