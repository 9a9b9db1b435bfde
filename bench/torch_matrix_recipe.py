"""torch_matrix_recipe: a recipe with batch norm, dropout and drawn data that kills its own process on demand."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe

KILLED_IN = "KILLED_IN"
"""The variable that names a run's directory: as soon as a checkpoint is there, the process gets `kill -9`."""


def make_samples() -> TensorDataset:
    x = torch.randn(512, 8)
    return TensorDataset(x, x.sum(dim=1, keepdim=True))


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, int]:
    run = os.environ.get(KILLED_IN)
    if run and any(Path(run).glob("checkpoints/step-*/MANIFEST")):
        os.kill(os.getpid(), signal.SIGKILL)
    x, y = batch
    return nn.functional.mse_loss(model(x), y, reduction="sum"), len(y)


def killed() -> Recipe:
    return Recipe(
        model=model,
        data=make_samples,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        micro_batch_size=32,
        max_steps=30,
        save_every=5,
    )
