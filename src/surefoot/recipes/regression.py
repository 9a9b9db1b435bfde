"""regression: fit a line, w * x + b. The smallest recipe that trains."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Number, Rate


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return ((model(x) - y) ** 2).sum(), len(y)


def noisy_line(samples: int, slope: float, offset: float) -> TensorDataset:
    """Points near the line slope * x + offset. They are the same in every run."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(samples, 1, generator=generator)
    noise = 0.05 * torch.randn(samples, 1, generator=generator)
    return TensorDataset(x, slope * x + offset + noise)


def regression(samples: Count = 256, slope: Number = 2.0, offset: Number = 0.5, lr: Rate = 0.1) -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(1, 1),
        data=lambda: noisy_line(samples, slope, offset),
        loss=squared_error,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr),
        micro_batch_size=64,
        max_steps=200,
        about=f"the line {slope:g} * x + {offset:g}, from {samples} noisy points",
    )
