"""A frozen body with small adapters as a recipe: most parameters are frozen, the last adapter layer begins at zero."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe


class Adapted(nn.Module):
    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width)).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank), nn.Linear(rank, width)
        self.head = nn.Linear(width, 4)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(h + self.up(F.gelu(self.down(h))))


def points(samples: int) -> TensorDataset:
    x = torch.randn(samples, 12, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x[:, :4].argmax(1))


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="sum"), len(y)


def adapted(width: int = 32, rank: int = 4, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: Adapted(width, rank),
        data=lambda: points(320),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=16,
        global_batch_tokens=32,
        max_steps=50,
    )
