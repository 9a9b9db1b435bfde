"""Variational autoencoder on 14x14 seven-segment digits, with KL warm-up and an importance-weighted test bound."""
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEGMENTS = {0: "abcdef", 1: "bc", 2: "abged", 3: "abgcd", 4: "fgbc", 5: "afgcd", 6: "afgedc", 7: "abc",
            8: "abcdefg", 9: "abfgcd"}
STROKES = {"a": (0, 0, 0, 5), "b": (0, 5, 4, 5), "c": (4, 5, 8, 5), "d": (8, 0, 8, 5), "e": (4, 0, 8, 0),
           "f": (0, 0, 4, 0), "g": (4, 0, 4, 5)}


@dataclass
class Hyper:
    train_size: int = 1920
    test_size: int = 320
    latent: int = 8
    hidden: int = 128
    batch: int = 96
    epochs: int = 7
    lr: float = 3e-3
    warmup: float = 0.5
    iw_samples: int = 16
    seed: int = 13


def digit_images(n, rng):
    """uint8 grey images, as a data file would hold them."""
    out = np.zeros((n, 14, 14), dtype=np.float32)
    for i in range(n):
        top, left = rng.integers(1, 5), rng.integers(1, 8)
        for s in SEGMENTS[int(rng.integers(10))]:
            y0, x0, y1, x1 = STROKES[s]
            out[i, top + y0:top + y1 + 1, left + x0:left + x1 + 1] = min(1.0, rng.uniform(0.75, 1.25))
    return torch.from_numpy((out * 255).astype(np.uint8)).flatten(1)


def load_data(h):
    rng = np.random.default_rng(h.seed)
    images = digit_images(h.train_size + h.test_size, rng).float() / 255
    images = torch.bernoulli(images, generator=torch.Generator().manual_seed(h.seed))
    return images[:h.train_size], images[h.train_size:]


class VAE(nn.Module):
    def __init__(self, pixels, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.to_mu = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                     nn.Linear(hidden, pixels))

    def encode(self, x):
        h = self.encoder(x)
        return self.to_mu(h), self.to_logvar(h).clamp(-8, 4)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(mu)
        return mu + std * eps

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


def reconstruction(logits, x):
    return F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)


def kl_divergence(mu, logvar):
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1)


def gaussian_logpdf(z, mu, logvar):
    return -0.5 * (math.log(2 * math.pi) + logvar + (z - mu) ** 2 / logvar.exp()).sum(-1)


class KLWarmup:
    """Linear from 0 to 1 over the first part of training, then constant."""

    def __init__(self, steps):
        self.steps, self.now = max(1, steps), 0

    def next(self):
        self.now += 1
        return min(1.0, self.now / self.steps)


def run_epoch(model, data, optimizer, warmup, h):
    model.train()
    order = torch.randperm(len(data))
    totals = torch.zeros(2)
    for start in range(0, len(order), h.batch):
        x = data[order[start:start + h.batch]]
        logits, mu, logvar = model(x)
        rec, kl = reconstruction(logits, x).mean(), kl_divergence(mu, logvar).mean()
        loss = rec + warmup.next() * kl
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 20.0)
        optimizer.step()
        totals += torch.tensor([rec.item(), kl.item()]) * len(x)
    return (totals / len(order)).tolist()


@torch.no_grad()
def test_bounds(model, data, k):
    """Negative ELBO and the k-sample importance-weighted bound, in nats per image."""
    model.eval()
    logits, mu, logvar = model(data)
    elbo = -(reconstruction(logits, data) + kl_divergence(mu, logvar)).mean().item()
    log_w = []
    for _ in range(k):
        z = model.reparameterize(mu, logvar)
        log_px = -reconstruction(model.decoder(z), data)
        log_w.append(log_px + gaussian_logpdf(z, torch.zeros_like(z), torch.zeros_like(z)) - gaussian_logpdf(z, mu, logvar))
    bound = torch.logsumexp(torch.stack(log_w), dim=0) - math.log(k)
    return -elbo, -bound.mean().item()


def main():
    h = Hyper()
    torch.manual_seed(h.seed)
    train_x, test_x = load_data(h)
    model = VAE(train_x.shape[1], h.hidden, h.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=h.lr)
    steps = h.epochs * math.ceil(len(train_x) / h.batch)
    warmup = KLWarmup(int(h.warmup * steps))
    for epoch in range(h.epochs):
        rec, kl = run_epoch(model, train_x, optimizer, warmup, h)
        print(f"epoch {epoch}: reconstruction {rec:.2f} KL {kl:.2f}")
    elbo, iw = test_bounds(model, test_x, h.iw_samples)
    print(f"final train -ELBO {rec + kl:.2f}, test -ELBO {elbo:.2f}, test IW bound {iw:.2f}")


if __name__ == "__main__":
    main()
