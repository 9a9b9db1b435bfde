"""A classifier of points on three spirals, as a recipe: surefoot plans, checks, trains, profiles and exports it."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe

CLASSES = 3


def spirals(samples: int) -> TensorDataset:
    """Your data goes here: any data set with `len(data)` and `data[number]`.

    Draw from torch's global generator without seeding it: surefoot seeds it before it calls you, with one seed for the
    model, one for the training data and one for the held-out data. So a resumed run sees the same samples.
    """
    labels = torch.randint(0, CLASSES, (samples,))
    along = torch.rand(samples)
    angle = 2 * math.pi * labels / CLASSES + 4 * along + 0.1 * torch.randn(samples)
    return TensorDataset(torch.stack([along * angle.cos(), along * angle.sin()], dim=1), labels)


class Classifier(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
        )

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(points)  # raw logits: cross_entropy applies the softmax itself


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """A sum and its count, not a mean: surefoot divides once per step, so the size of a micro-batch changes nothing."""
    points, labels = batch
    return F.cross_entropy(model(points), labels, reduction="sum"), len(labels)


# The parameters are the knobs: `surefoot train FILE hidden=128 lr=1e-3`.
def classifier(hidden: int = 64, lr: float = 3e-3, samples: int = 3000) -> Recipe:
    return Recipe(
        model=lambda: Classifier(hidden),  # functions, so that surefoot can build each part where it needs it
        data=lambda: spirals(samples),
        evaluation=lambda: spirals(500),  # held-out points that training never sees
        evaluate_every=100,
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=100,
        max_steps=500,
        about=f"which of {CLASSES} spirals a point lies on",
    )
