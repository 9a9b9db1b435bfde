"""Prices of flats from twelve columns: an MLP with skip connections as a recipe."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


def flats(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(count, 12, generator=generator)
    price = columns[:, 0] * 1.5 + columns[:, 1] * columns[:, 2] + columns[:, 3].clamp(min=0)
    price = price + 0.1 * torch.randn(count, generator=generator)
    return TensorDataset(columns, price)


class Skip(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(self.norm(x)))
        return x + self.drop(self.second(y))


class Pricer(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.columns = nn.Linear(12, width)
        self.skips = nn.ModuleList([Skip(width) for _ in range(depth)])
        self.price = nn.Linear(width, 1)

    def forward(self, columns: Tensor) -> Tensor:
        x = self.columns(columns)
        for skip in self.skips:
            x = skip(x)
        return self.price(x).squeeze(1)


def price_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    columns, price = batch
    guess = model(columns)
    return F.smooth_l1_loss(guess, price)


def pricer(width: int = 32, depth: int = 2, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: Pricer(width, depth),
        data=lambda: flats(512, seed=21),
        evaluation=lambda: flats(64, seed=22),
        loss=price_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=10 * lr, momentum=0.9),
        micro_batch_size=32,
        max_steps=60,
        evaluate_every=30,
    )
