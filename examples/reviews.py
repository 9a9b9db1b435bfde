"""Tells good reviews from bad ones, by four numbers per review."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def make_reviews():
    scores = torch.randn(1000, 4)
    return TensorDataset(scores, (scores.sum(dim=1) > 0).long())


def class_loss(model, batch):
    scores, labels = batch
    return nn.functional.cross_entropy(model(scores), labels, reduction="sum"), len(labels)


def reviews(hidden: int = 64, lr: float = 1e-2) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
        data=make_reviews,
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        max_steps=100,
    )
