"""An update of your own: a generator learns to draw points from a circle, against a discriminator."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def circle() -> TensorDataset:
    return TensorDataset(F.normalize(torch.randn(512, 2), dim=1))


def near_the_circle(networks, batch):
    made = networks["generator"](torch.randn(len(batch[0]), 8))
    return {"near": (((made.norm(dim=1) - 1).abs() < 0.2).sum(), len(made))}


def says(judged: Tensor, real: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(judged, torch.full_like(judged, real))


def networks():
    return {
        "generator": nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)),
        "discriminator": nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)),
    }


def optimizers(networks):
    return {name: torch.optim.Adam(each.parameters(), lr=1e-3) for name, each in networks.items()}


def update(networks, optimizers, batch):
    (points,) = batch
    generator, discriminator = networks["generator"], networks["discriminator"]
    fake = generator(torch.randn(len(points), 8))

    optimizers["discriminator"].zero_grad()
    fooled = says(discriminator(points), real=1.0) + says(discriminator(fake.detach()), real=0.0)
    fooled.backward()
    optimizers["discriminator"].step()

    optimizers["generator"].zero_grad()
    missed = says(discriminator(fake), real=1.0)
    missed.backward()
    optimizers["generator"].step()
    return {"generator": missed, "discriminator": fooled}


def two_networks() -> Recipe:
    return Recipe(
        model=networks,
        optimizer=optimizers,
        step=update,
        data=circle,
        evaluation=circle,
        metrics=near_the_circle,
        evaluate_every=50,
        micro_batch_size=64,
        max_steps=100,
    )
