"""WGAN with a penalty on the critic's gradient: points on a ring of eight hills."""

import math

import torch
from torch import autograd, nn

torch.manual_seed(3)
LATENT, BATCH, CRITIC_STEPS, PENALTY = 8, 64, 3, 10.0


def hills(count):
    """Real points: eight narrow hills on a circle."""
    angle = torch.randint(0, 8, (count,)) * (2 * math.pi / 8)
    centre = torch.stack([angle.cos(), angle.sin()], dim=1)
    return centre + 0.05 * torch.randn(count, 2)


class Generator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(LATENT, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    """How far the slope is from one, on lines between real and made points."""
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    scores = critic(between)
    (slope,) = autograd.grad(scores.sum(), between, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


generator, critic = Generator(), Critic()
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
fixed_noise = torch.randn(256, LATENT)

for step in range(48):
    for _ in range(CRITIC_STEPS):
        real = hills(BATCH)
        with torch.no_grad():
            fake = generator(torch.randn(BATCH, LATENT))
        critic_loss = critic(fake).mean() - critic(real).mean()
        penalty = PENALTY * gradient_penalty(critic, real, fake)
        critic_optimizer.zero_grad()
        (critic_loss + penalty).backward()
        critic_optimizer.step()

    fake = generator(torch.randn(BATCH, LATENT))
    generator_loss = -critic(fake).mean()
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()

    if (step + 1) % 12 == 0:
        generator.eval()
        with torch.no_grad():
            radius = generator(fixed_noise).norm(dim=1).mean().item()
        generator.train()
        print(f"step {step + 1}: distance {-critic_loss.item():.3f} penalty {penalty.item():.3f} radius {radius:.3f}")

torch.save({"generator": generator.state_dict(), "critic": critic.state_dict()}, "hills.pt")
