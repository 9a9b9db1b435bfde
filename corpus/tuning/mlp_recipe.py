"""Wine quality from chemistry: an MLP regression as a recipe."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


class Quality(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(11, width)
        self.rest = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        for layer in self.rest:
            h = torch.relu(layer(h))
        return self.last(self.dropout(h))


def wines(samples: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 11, generator=generator)
    y = (x[:, :1] - x[:, 1:2]) * 0.7 + 0.1 * torch.randn(samples, 1, generator=generator)
    return TensorDataset(x, y)


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    error = model(x) - y
    return error.square().sum(), len(y)


def quality(width: int = 32, dropout: float = 0.1, lr: float = 1e-2) -> Recipe:
    return Recipe(
        model=lambda: Quality(width, dropout),
        data=lambda: wines(512, seed=1),
        evaluation=lambda: wines(64, seed=2),
        loss=squared_error,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        micro_batch_size=32,
        global_batch_tokens=64,
        max_steps=50,
        evaluate_every=25,
    )
