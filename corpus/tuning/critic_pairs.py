"""A Wasserstein GAN on pairs of numbers: five updates of a critic with gradient penalty for one of the generator."""

import math

import torch
from torch import nn

LATENT, BATCH, CRITIC_UPDATES, PENALTY = 4, 64, 5, 1.0


def real_pairs(count: int) -> torch.Tensor:
    """Points of eight clusters on a circle."""
    angle = torch.randint(8, (count,)) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def mlp(inside: int, outside: int, width: int = 48) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outside),
    )


def gradient_penalty(critic: nn.Module, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """How far the slope of the critic is from one, between real and made pairs."""
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    score = critic(between)
    (slope,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


@torch.no_grad()
def spread(generator: nn.Module, count: int = 512) -> tuple[float, int]:
    """Mean distance of made pairs from the nearest cluster, and how many clusters have any."""
    generator.eval()
    made = generator(torch.randn(count, LATENT))
    generator.train()
    angle = torch.arange(8) * (2 * math.pi / 8)
    centres = torch.stack([angle.cos(), angle.sin()], dim=1)
    distance, nearest = torch.cdist(made, centres).min(dim=1)
    return distance.mean().item(), len(nearest.unique())


def main() -> None:
    torch.manual_seed(12)
    generator, critic = mlp(LATENT, 2), mlp(2, 1)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for step in range(1, 61):
        for _ in range(CRITIC_UPDATES):
            real = real_pairs(BATCH)
            with torch.no_grad():
                fake = generator(torch.randn(BATCH, LATENT))
            gap = critic(real).mean() - critic(fake).mean()
            critic_loss = -gap + PENALTY * gradient_penalty(critic, real, fake)
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()
        fake = generator(torch.randn(BATCH, LATENT))
        generator_loss = -critic(fake).mean()
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        if step % 15 == 0:
            distance, clusters = spread(generator)
            print(f"step {step} gap {gap.item():.3f} distance {distance:.3f} clusters {clusters}")
    torch.save({"generator": generator.state_dict(), "critic": critic.state_dict()}, "pairs.pt")


if __name__ == "__main__":
    main()
