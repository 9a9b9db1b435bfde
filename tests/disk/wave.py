"""A recipe that takes a moment: ten steps, a checkpoint after every third."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def data() -> TensorDataset:
    x = torch.sin(torch.arange(40 * 8.0)).view(40, 8)
    return TensorDataset(x, x.sum(dim=1, keepdim=True))


def loss(model: nn.Module, batch: list[torch.Tensor], scale: float) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1]) * scale


def wave(scale: float = 1.0, width: int = 16) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(8, width), nn.Dropout(0.1), nn.Tanh(), nn.Linear(width, 1)),
        data=data,
        loss=lambda model, batch: loss(model, batch, scale),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=4,
        max_steps=10,
        save_every=3,
        keep_last=2,
    )
