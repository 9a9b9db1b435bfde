"""Masks of leaves as black and white pictures: a variational autoencoder that is stopped and continued once."""

import os

import torch
import torch.nn.functional as F
from torch import nn

SIDE, LATENT, BATCH = 12, 4, 24
CHECKPOINT = "vae.pt"


class Swish(torch.autograd.Function):
    """x * sigmoid(x) that keeps its input only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


def leaves(count, seed):
    """Ellipses of any centre, size and tilt as bytes of 0 and 255."""
    g = torch.Generator().manual_seed(seed)
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    centre = 0.8 * torch.rand(count, 2, 1, 1, generator=g) - 0.4
    long = 0.4 + 0.4 * torch.rand(count, 1, 1, generator=g)
    tilt = 3.14 * torch.rand(count, 1, 1, generator=g)
    x, y = xs - centre[:, 0], ys - centre[:, 1]
    u, v = x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin()
    inside = (u / long) ** 2 + (v / 0.35) ** 2 < 1
    return (255 * inside).to(torch.uint8)


class VAE(nn.Module):
    def __init__(self, channels=8, width=48):
        super().__init__()
        self.look = nn.Conv2d(1, channels, 4, stride=2, padding=1)
        self.squeeze = nn.Linear(channels * 36, width)
        self.mean = nn.Linear(width, LATENT)
        self.log_var = nn.Linear(width, LATENT)
        self.spread = nn.Linear(LATENT, width)
        self.grow = nn.Linear(width, channels * 36)
        self.paint = nn.ConvTranspose2d(channels, 1, 4, stride=2, padding=1)

    def encode(self, x):
        h = Swish.apply(self.look(x)).flatten(1)
        h = Swish.apply(self.squeeze(h))
        return self.mean(h), self.log_var(h)

    def sample(self, mean, log_var):
        if not self.training:
            return mean
        return mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)

    def decode(self, z):
        h = Swish.apply(self.spread(z))
        h = Swish.apply(self.grow(h)).view(len(z), -1, 6, 6)
        return self.paint(h)

    def forward(self, x):
        mean, log_var = self.encode(x)
        z = self.sample(mean, log_var)
        return self.decode(z), mean, log_var


def elbo_terms(logits, x, mean, log_var):
    """Reconstruction and divergence, both summed over a picture and averaged over the batch."""
    painted = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    divergence = -0.5 * torch.sum(1 + log_var - mean.square() - log_var.exp()) / len(x)
    return painted, divergence


def as_pictures(masks):
    return masks.float().unsqueeze(1) / 255


def session(until):
    """Trains up to an epoch, from the checkpoint if there is one."""
    masks, held = leaves(360, seed=20), as_pictures(leaves(50, seed=21))
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    begin = 0
    if os.path.exists(CHECKPOINT):
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        begin = saved["epoch"]
    for epoch in range(begin, until):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(masks)).split(BATCH):
            x = as_pictures(masks[rows])
            logits, mean, log_var = model(x)
            painted, divergence = elbo_terms(logits, x, mean, log_var)
            loss = painted + divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        scheduler.step()
        model.eval()
        with torch.no_grad():
            logits, mean, log_var = model(held)
            painted, divergence = elbo_terms(logits, held, mean, log_var)
        print(f"epoch {epoch} train {total / len(masks):.1f} held {painted:.1f} + {divergence:.1f}")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save({**state, "epoch": until}, CHECKPOINT)


if __name__ == "__main__":
    torch.manual_seed(9)
    if os.path.exists(CHECKPOINT):
        os.remove(CHECKPOINT)
    session(until=3)
    session(until=6)
