"""Metrics: accuracy on held-out points, the best step kept, and test data scored once, at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def points(count: int, seed: int) -> TensorDataset:
    """Points around three centres, and the number of their centre."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=draws)
    return TensorDataset(2 * torch.eye(3)[labels] + torch.randn(count, 3, generator=draws), labels)


def loss(model, batch):
    x, labels = batch
    return F.cross_entropy(model(x), labels, reduction="sum"), len(labels)


def accuracy(model, batch):
    x, labels = batch
    return {"accuracy": ((model(x).argmax(1) == labels).sum(), len(labels))}


def centres() -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3)),
        data=lambda: points(512, seed=1),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=32,
        max_steps=100,
        evaluation=lambda: points(200, seed=2),
        evaluate_every=20,
        evaluation_batches=None,
        metrics=accuracy,
        best="accuracy",
        patience=5,
        test=lambda: points(200, seed=3),
    )
