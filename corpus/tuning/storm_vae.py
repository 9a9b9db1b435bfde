"""A conditional VAE of rain profiles over a day: the weight of the KL term grows from zero, unseen days for test."""

import logging

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(format="%(message)s", level=logging.INFO)
log = logging.getLogger("storms")
HOURS, LATENT, SEASONS = 24, 3, 4


def days(n, seed):
    g = torch.Generator().manual_seed(seed)
    season = torch.randint(0, SEASONS, (n,), generator=g)
    peak = 6 + 3 * season[:, None] + 2 * torch.randn(n, 1, generator=g)
    width = 1.5 + torch.rand(n, 1, generator=g) * 2
    amount = 1 + torch.rand(n, 1, generator=g) * 2
    hour = torch.arange(HOURS)
    rain = amount * torch.exp(-0.5 * ((hour - peak) / width) ** 2)
    return rain + 0.1 * torch.randn(n, HOURS, generator=g), season


class StormVAE(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(HOURS + SEASONS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean = nn.Linear(width, LATENT)
        self.log_std = nn.Linear(width, LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT + SEASONS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, HOURS)
        )
        self.noise = nn.Parameter(torch.tensor(-0.7))  # logarithm of the spread of the rain around the curve

    def posterior(self, rain, season):
        h = self.encoder(torch.cat([rain, season], dim=1))
        return D.Normal(self.mean(h), self.log_std(h).clamp(-5, 2).exp())

    def likelihood(self, z, season):
        return D.Normal(self.decoder(torch.cat([z, season], dim=1)), self.noise.exp())

    def elbo(self, rain, season):
        """Both terms per day, in nats."""
        season = F.one_hot(season, SEASONS).float()
        q = self.posterior(rain, season)
        z = q.rsample()
        reconstruction = self.likelihood(z, season).log_prob(rain).sum(dim=1)
        kl = D.kl_divergence(q, D.Normal(torch.zeros(LATENT), torch.ones(LATENT))).sum(dim=1)
        return reconstruction, kl


def test(model, loader):
    model.eval()
    rows = reconstruction = kl = 0
    with torch.no_grad():
        for rain, season in loader:
            a, b = model.elbo(rain, season)
            reconstruction, kl, rows = reconstruction + a.sum().item(), kl + b.sum().item(), rows + len(rain)
    return reconstruction / rows, kl / rows


def main(epochs=7, warm_up=45):
    torch.manual_seed(36)
    train_loader = DataLoader(TensorDataset(*days(640, 1)), batch_size=32, shuffle=True)
    test_loader = DataLoader(TensorDataset(*days(150, 2)), batch_size=64)
    model = StormVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(epochs):
        model.train()
        for rain, season in train_loader:
            beta = min(1.0, step / warm_up)
            reconstruction, kl = model.elbo(rain, season)
            loss = (beta * kl - reconstruction).mean() / HOURS
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
        reconstruction, kl = test(model, test_loader)
        log.info(f"epoch {epoch}: beta {beta:.2f} reconstruction {reconstruction:.2f} kl {kl:.2f} nats")
    with torch.no_grad():
        season = F.one_hot(torch.arange(SEASONS), SEASONS).float()
        drawn = model.likelihood(torch.randn(SEASONS, LATENT), season).mean
    log.info(f"wettest hours of one drawn day per season: {drawn.argmax(dim=1).tolist()}")


if __name__ == "__main__":
    main()
