"""cruncher: a deep linear network. You can count its FLOPs and bytes by hand."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Layers, Rate


class Cruncher(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return ((model(x) - y) ** 2).sum(), len(y)


def linear_targets(samples: int, width: int) -> TensorDataset:
    """Random inputs, and a linear map of them as targets. They are the same in every run."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, width, generator=generator)
    return TensorDataset(x, x @ torch.randn(width, 1, generator=generator) / width**0.5)


def cruncher(width: Count = 512, layers: Layers = 4, samples: Count = 1024, lr: Rate = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: Cruncher(width, layers),
        data=lambda: linear_targets(samples, width),
        loss=squared_error,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        max_steps=100,
        about=f"a linear map of {width} random features, from {samples} samples",
    )
