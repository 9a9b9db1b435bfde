"""Qualities of wine from eleven measurements: a plain classifier with a learned scale, as a recipe."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

QUALITIES = 5


class Wines(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.measured = torch.randn(count, 11, generator=g)
        score = self.measured[:, :4].sum(1) + self.measured[:, 4] * self.measured[:, 5]
        noisy = score + 0.3 * torch.randn(count, generator=g)
        self.quality = torch.bucketize(noisy, torch.tensor([-2.0, -0.7, 0.7, 2.0]))

    def __len__(self) -> int:
        return len(self.quality)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.measured[index], self.quality[index]


class Taster(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(11))
        self.layers = nn.ModuleList([nn.Linear(11, width), nn.Linear(width, width)])
        self.dropout = nn.Dropout(0.1)
        self.quality = nn.Linear(width, QUALITIES)

    def forward(self, measured: Tensor) -> Tensor:
        x = measured * self.scale
        for layer in self.layers:
            x = torch.nn.functional.elu(layer(x))
        return self.quality(self.dropout(x))


def taste(model: nn.Module, batch: list[Tensor]) -> Tensor:
    measured, quality = batch
    return nn.functional.cross_entropy(model(measured), quality)


def wine(width: int = 32, lr: float = 5e-3) -> Recipe:
    return Recipe(
        model=lambda: Taster(width),
        data=lambda: Wines(600, seed=5),
        evaluation=lambda: Wines(80, seed=6),
        loss=taste,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=20,
        max_steps=60,
        evaluate_every=20,
    )
