"""gan: a generator learns to draw points from a ring of eight clusters, against a discriminator.

The step is its own: one update of the discriminator, then one of the generator, each with its own optimizer.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Rate

NOISE, CLUSTERS, SPREAD = 8, 8, 0.05


def ring(count: int, seed: int) -> Tensor:
    """Points around eight centres on a circle of radius 1."""
    draws = torch.Generator().manual_seed(seed)
    angle = torch.randint(CLUSTERS, (count,), generator=draws) * (2 * math.pi / CLUSTERS)
    return torch.stack([angle.cos(), angle.sin()], 1) + SPREAD * torch.randn(count, 2, generator=draws)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def update(networks: Any, optimizers: Any, batch: tuple[Tensor]) -> dict[str, Tensor]:
    """One update of each network. The generator's points are detached while the discriminator learns."""
    (real,) = batch
    generator, discriminator = networks["generator"], networks["discriminator"]
    fake = generator(torch.randn(len(real), NOISE, device=real.device))

    optimizers["discriminator"].zero_grad()
    of_real, of_fake = discriminator(real), discriminator(fake.detach())
    fooled = F.binary_cross_entropy_with_logits(of_real, torch.ones_like(of_real)) + (
        F.binary_cross_entropy_with_logits(of_fake, torch.zeros_like(of_fake))
    )
    fooled.backward()
    optimizers["discriminator"].step()

    optimizers["generator"].zero_grad()
    judged = discriminator(fake)
    missed = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))
    missed.backward()
    optimizers["generator"].step()
    return {"generator": missed, "discriminator": fooled}


def near_a_cluster(networks: Any, batch: tuple[Tensor]) -> dict[str, tuple[Tensor, int]]:
    """The share of generated points within four deviations of a centre."""
    (real,) = batch
    made = networks["generator"](torch.randn(len(real), NOISE, device=real.device))
    angle = torch.arange(CLUSTERS, device=real.device) * (2 * math.pi / CLUSTERS)
    centres = torch.stack([angle.cos(), angle.sin()], 1)
    distance = torch.cdist(made, centres).min(1).values
    return {"near": ((distance < 4 * SPREAD).sum(), len(real))}


def gan(hidden: Count = 64, lr: Rate = 1e-3, max_steps: Count = 1500) -> Recipe:
    return Recipe(
        model=lambda: {"generator": mlp(NOISE, hidden, 2), "discriminator": mlp(2, hidden, 1)},
        data=lambda: TensorDataset(ring(8192, seed=1)),
        evaluation=lambda: TensorDataset(ring(1024, seed=2)),
        evaluate_every=max(1, max_steps // 10),
        evaluation_batches=None,
        step=update,
        metrics=near_a_cluster,
        optimizer=lambda networks: {
            name: torch.optim.Adam(network.parameters(), lr=lr, betas=(0.5, 0.999))
            for name, network in networks.items()
        },
        micro_batch_size=256,
        max_steps=max_steps,
        about="points on a ring of eight clusters, drawn by a generator against a discriminator",
    )
