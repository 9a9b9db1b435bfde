"""A variational autoencoder of tide curves; the divergence counts little at first and fully after some epochs."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

HOURS, LATENT, EPOCHS, WARM_EPOCHS = 48, 8, 8, 4


def tide_curves(count, seed):
    """Two days of levels: a tide of half a day and one of a day, each with its height and time."""
    rng = np.random.default_rng(seed)
    hours = np.arange(HOURS)
    heights = rng.uniform([0.5, 0.1], [1.5, 0.6], (count, 2))
    phases = rng.uniform(0, 2 * np.pi, (count, 2))
    half = heights[:, :1] * np.sin(2 * np.pi * hours / 12.4 + phases[:, :1])
    whole = heights[:, 1:] * np.sin(2 * np.pi * hours / 24.8 + phases[:, 1:])
    return torch.tensor(half + whole + 0.05 * rng.standard_normal((count, HOURS)), dtype=torch.float32)


class TideVAE(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(HOURS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean = nn.Linear(width, LATENT)
        self.logvar = nn.Linear(width, LATENT)
        self.decode = nn.Sequential(
            nn.Linear(LATENT, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, HOURS)
        )

    def forward(self, curves):
        hidden = self.encode(curves)
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        latent = mean
        if self.training:
            latent = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        return self.decode(latent), mean, logvar


def parts(curves, decoded, mean, logvar):
    """Per curve: what is lost of it, for noise of a tenth of a metre, and nats of its code."""
    lost = 0.5 * ((decoded - curves) / 0.1).pow(2).sum(dim=1).mean()
    nats = 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar)
    return lost, nats.mean(dim=0).sum()


torch.manual_seed(5)
loader = DataLoader(tide_curves(640, seed=1), batch_size=32, shuffle=True)
test_curves = tide_curves(128, seed=2)
vae = TideVAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)
for epoch in range(EPOCHS):
    vae.train()
    beta = min(1.0, epoch / WARM_EPOCHS)
    seen_lost, seen_nats = 0.0, 0.0
    for curves in loader:
        lost, nats = parts(curves, *vae(curves))
        loss = lost + beta * nats
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(vae.parameters(), 50.0)
        optimizer.step()
        seen_lost += lost.item() / len(loader)
        seen_nats += nats.item() / len(loader)
    scheduler.step()
    vae.eval()
    with torch.no_grad():
        decoded, mean, logvar = vae(test_curves)
        error = F.mse_loss(decoded, test_curves).sqrt()
    print(f"{epoch} beta {beta:.2f} lost {seen_lost:.1f} nats {seen_nats:.2f} test error {error.item():.3f} m")
