"""Knots in the plane as closed curves: a variational autoencoder of points, two optimizers, a growing beta."""

import math
import sys

import torch
from torch import nn, optim
from torch.distributions import Normal, kl_divergence

POINTS, LATENT = 24, 4
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 8


class Squash(torch.autograd.Function):
    """log(1 + |x|) with the sign of x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign() * torch.log1p(x.abs())

    @staticmethod
    def backward(ctx, upper):
        (x,) = ctx.saved_tensors
        return upper / (1 + x.abs())


def knots(count, seed):
    """Rosettes of two to four leaves, turned and stretched."""
    gen = torch.Generator().manual_seed(seed)
    leaves = torch.randint(2, 5, (count, 1), generator=gen)
    depth, turn = 0.2 + 0.6 * torch.rand(count, 1, generator=gen), 6.28 * torch.rand(count, 1, generator=gen)
    t = torch.linspace(0, 2 * math.pi, POINTS + 1)[:-1]
    radius = 1 + depth * torch.cos(leaves * t + turn)
    curve = torch.stack([radius * torch.cos(t), radius * torch.sin(t)], dim=2)
    return curve + 0.03 * torch.randn(curve.shape, generator=gen)


class Encoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.enter = nn.Linear(2 * POINTS, width)
        self.deeper = nn.Linear(width, width)
        self.mean, self.log_scale = nn.Linear(width, LATENT), nn.Linear(width, LATENT)

    def forward(self, curve):
        h = Squash.apply(self.enter(curve.flatten(1)))
        h = Squash.apply(self.deeper(h))
        return Normal(self.mean(h), self.log_scale(h).clamp(-5, 2).exp())


class Decoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.points = nn.Linear(width, 2 * POINTS)
        self.noise = nn.Parameter(torch.tensor(-1.0))

    def forward(self, z):
        return Normal(self.points(self.net(z)).unflatten(1, (POINTS, 2)), self.noise.exp())


def elbo_terms(encoder, decoder, curve):
    posterior = encoder(curve)
    z = posterior.rsample()
    fit = decoder(z).log_prob(curve).sum(dim=(1, 2))
    cost = kl_divergence(posterior, Normal(0.0, 1.0)).sum(dim=1)
    return fit, cost


torch.manual_seed(55)
known, unseen = knots(640, seed=1), knots(100, seed=2)
encoder, decoder = Encoder(), Decoder()
opt_e = optim.Adam(encoder.parameters(), lr=2e-3)
opt_d = optim.Adam(decoder.parameters(), lr=2e-3)
history = []
step = 0
epoch = 0
while epoch < EPOCHS:
    encoder.train(), decoder.train()
    beta = min(1.0, (epoch + 1) / 4)
    for rows in torch.randperm(len(known)).split(32):
        curve = known[rows]
        fit, cost = elbo_terms(encoder, decoder, curve)
        loss = (beta * cost - fit).mean() / (2 * POINTS)
        opt_e.zero_grad()
        opt_d.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 5.0)
        opt_e.step()
        opt_d.step()
        history.append(loss.item())
        step += 1
    encoder.eval(), decoder.eval()
    with torch.no_grad():
        bound = torch.cat([fit - cost for fit, cost in (elbo_terms(encoder, decoder, x) for x in unseen.split(40))])
    epoch += 1
    print(f"{epoch} {step} loss {sum(history[-20:]) / 20:.3f} bound {bound.mean().item():.2f}")
torch.save({"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}, "knots.pt")
