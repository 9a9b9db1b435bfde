"""A recipe to sweep over: a small network whose memory grows with its width, and held-out data."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.errors import RecipeError


def points(seed: int, count: int) -> TensorDataset:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.prod(1, keepdim=True).sin())


def swept(
    width: int = 8, lr: float = 1e-2, activation: str = "tanh", max_steps: int = 20, pause: float = 0.0
) -> Recipe:
    if width % 2:
        raise RecipeError(f"width={width} must be even")

    def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(pause)  # time itself: a sweep is to be killed in the middle of its trials
        return F.mse_loss(model(batch[0]), batch[1])

    kinds = {"tanh": nn.Tanh, "relu": nn.ReLU}
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, width), kinds[activation](), nn.Linear(width, 1)),
        data=lambda: points(1, 256),
        evaluation=lambda: points(2, 64),
        evaluate_every=2,
        metrics=lambda model, batch: {"error": ((model(batch[0]) - batch[1]).abs().sum(), len(batch[0]))},
        loss=loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=16,
        max_steps=max_steps,
    )
