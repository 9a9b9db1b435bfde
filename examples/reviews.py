import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def class_loss(model, batch):
    features, labels = batch
    return nn.functional.cross_entropy(model(features), labels, reduction="sum"), len(labels)


def reviews(hidden: int = 64, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
        data=lambda: TensorDataset(torch.randn(1000, 4), torch.randint(0, 2, (1000,))),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        max_steps=100,
    )
