"""Plants from the outlines of their pollen grains: convolutions around the rim, attention pooling, as a recipe."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

PLANTS, RIM = 5, 32


class Snake(torch.autograd.Function):
    """x + sin(x)^2, whose slope is 1 + sin(2 x)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + torch.sin(x).square()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (1 + torch.sin(2 * x))


class Grains(Dataset):
    """Distance of the rim from the middle at 32 angles: each plant has its own number of spines."""

    def __init__(self, count: int, seed: int, turned: bool) -> None:
        g = torch.Generator().manual_seed(seed)
        self.turned = turned
        self.plant = torch.randint(0, PLANTS, (count,), generator=g)
        angle = torch.arange(RIM) * (2 * math.pi / RIM)
        spines = (2 + self.plant)[:, None]
        phase = 2 * math.pi * torch.rand(count, 1, generator=g)
        height = 2.0 + 0.6 * torch.rand(count, 1, generator=g)
        radius = 30 + height * torch.cos(spines * angle + phase) + 0.6 * torch.randn(count, RIM, generator=g)
        self.rim = (radius - 30) / 1.8

    def __len__(self) -> int:
        return len(self.plant)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        rim = self.rim[index]
        if self.turned:
            rim = rim.roll(int(torch.randint(RIM, ()))) + 0.1 * torch.randn(RIM)
        return {"rim": rim, "plant": self.plant[index]}


class PollenNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, width, 7, padding=3, padding_mode="circular")
        self.layers = nn.ModuleList(
            [nn.Conv1d(width, width, 5, padding=2, padding_mode="circular") for _ in range(depth)]
        )
        self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in range(depth)])
        self.question = nn.Parameter(torch.randn(width) / math.sqrt(width))
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)
        self.plant = nn.Linear(width, PLANTS)

    def forward(self, rim: Tensor) -> Tensor:
        x = self.enter(rim.unsqueeze(1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + Snake.apply(norm(layer(x)))
        x = x.transpose(1, 2)
        weights = torch.softmax(x @ self.question, dim=1)
        pooled = (weights.unsqueeze(2) * F.silu(self.value(x))).sum(dim=1)
        return self.plant(self.dropout(pooled))


def pollen_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["rim"])
    return F.cross_entropy(logits, batch["plant"], label_smoothing=0.02)


def groups(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    parameters = list(parameters)
    decayed = [p for p in parameters if p.ndim > 1]
    plain = [p for p in parameters if p.ndim <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}], lr=lr)


def pollen(width: int = 24, depth: int = 2, lr: float = 5e-3) -> Recipe:
    return Recipe(
        model=lambda: PollenNet(width, depth),
        data=lambda: Grains(640, seed=3, turned=True),
        evaluation=lambda: Grains(100, seed=4, turned=False),
        loss=pollen_loss,
        optimizer=lambda parameters: groups(parameters, lr),
        micro_batch_size=20,
        max_steps=60,
        evaluate_every=20,
    )
