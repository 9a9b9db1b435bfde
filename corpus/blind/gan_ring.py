"""WGAN-GP on a ring of eight Gaussians (2-d), shifted and stretched like real measurements."""
import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--steps", type=int, default=220, help="generator steps")
parser.add_argument("--critic-steps", type=int, default=4)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--gp-weight", type=float, default=1.0)
parser.add_argument("--lr", type=float, default=2e-3)
args = parser.parse_args()

torch.manual_seed(args.seed)
LATENT = 4
N_MODES = 8
CENTER = torch.tensor([6.0, -3.0])
RADIUS = 5.0
SPREAD = 0.35


def mode_positions():
    angle = torch.arange(N_MODES) * 2 * math.pi / N_MODES
    return CENTER + RADIUS * torch.stack([angle.cos(), angle.sin()], dim=1)


def make_ring(n_per_mode):
    parts = [m + SPREAD * torch.randn(n_per_mode, 2) for m in mode_positions()]
    return torch.cat(parts)


def mlp(n_in, n_out, width=64):
    return nn.Sequential(
        nn.Linear(n_in, width), nn.LeakyReLU(0.2),
        nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, n_out),
    )


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1)
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mixed)
    grad, = torch.autograd.grad(score.sum(), mixed, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def mean_distance(a, b):
    return torch.cdist(a, b).mean()


def energy_distance(fake, real):
    return 2 * mean_distance(fake, real) - mean_distance(fake, fake) - mean_distance(real, real)


data = make_ring(250)
data = data[torch.randperm(len(data))]
n_train = int(0.75 * len(data))
train, test = data[:n_train], data[n_train:]
shift, scale = train.mean(0), train.std(0)
train_scaled = (train - shift) / scale

generator = mlp(LATENT, 2)
critic = mlp(2, 1)
opt_g = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.0, 0.9))


@torch.no_grad()
def evaluate(n=500):
    samples = generator(torch.randn(n, LATENT)) * scale + shift
    nearest, which = torch.cdist(samples, mode_positions()).min(dim=1)
    good = nearest < 4 * SPREAD
    covered = (torch.bincount(which[good], minlength=N_MODES) >= 0.02 * n).sum().item()
    return energy_distance(samples, test).item(), covered, good.float().mean().item()


dist, covered, good = evaluate()
print(f"before: energy distance {dist:.3f}, modes covered {covered}/{N_MODES}, good samples {good:.2f}")

wasserstein = []
for step in range(1, args.steps + 1):
    for _ in range(args.critic_steps):
        real = train_scaled[torch.randint(0, len(train_scaled), (args.batch,))]
        fake = generator(torch.randn(args.batch, LATENT)).detach()
        gap = critic(real).mean() - critic(fake).mean()
        penalty = gradient_penalty(critic, real, fake)
        critic_loss = -gap + args.gp_weight * penalty
        opt_c.zero_grad()
        critic_loss.backward()
        opt_c.step()

    fake = generator(torch.randn(args.batch, LATENT))
    generator_loss = -critic(fake).mean()
    opt_g.zero_grad()
    generator_loss.backward()
    opt_g.step()

    wasserstein.append(gap.item())
    if step % 55 == 0:
        recent = sum(wasserstein[-55:]) / 55
        dist, covered, good = evaluate()
        print(f"step {step}: critic loss {critic_loss.item():.4f}  W estimate {recent:.4f}  energy {dist:.3f}  good {good:.2f}")

estimate = sum(wasserstein[-55:]) / 55
dist, covered, good = evaluate(1000)
print(f"after: energy distance {dist:.3f}, modes covered {covered}/{N_MODES}, good samples {good:.2f}, W estimate {estimate:.3f}")
