"""Sorts of beans from their measured outlines: an attentive tabular classifier, as a recipe."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

SORTS, COLUMNS = 5, 9


class Softplus2(torch.autograd.Function):
    """log2(1 + 2**x), with its derivative kept from the forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.sigmoid(x * 0.6931472))
        return F.softplus(x * 0.6931472) / 0.6931472

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return grad * slope


class Beans(Dataset):
    def __init__(self, count: int, seed: int, jitter: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        centres = np.random.default_rng(77).normal(0, 1, (SORTS, COLUMNS))
        self.jitter = jitter
        self.sort = rng.integers(0, SORTS, count)
        raw = centres[self.sort] + rng.normal(0, 0.8, (count, COLUMNS))
        self.outlines = (raw / 1.25).astype(np.float32)

    def __len__(self) -> int:
        return len(self.sort)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        outline = torch.from_numpy(self.outlines[index])
        if self.jitter:
            outline = outline + self.jitter * torch.randn(COLUMNS)
        return {"outline": outline, "sort": torch.tensor(self.sort[index])}


class Mixer(nn.Module):
    """Weighs the columns by what they say of each other, then a step through a wider layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5
        x = x + scores.softmax(dim=2) @ self.value(x)
        return x + self.narrow(Softplus2.apply(self.wide(self.norm(x))))


class BeanNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(COLUMNS, width) * 0.3)
        self.shifts = nn.Parameter(torch.randn(COLUMNS, width) * 0.3)
        self.mixers = nn.ModuleList([Mixer(width) for _ in range(depth)])
        self.dropout = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(width)
        self.sort = nn.Linear(width, SORTS)

    def forward(self, outline: Tensor) -> Tensor:
        x = outline.unsqueeze(2) * self.slopes + self.shifts
        for mixer in self.mixers:
            x = mixer(x)
        x = self.norm(x.mean(dim=1))
        return self.sort(self.dropout(x))


def bean_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["outline"])
    return F.cross_entropy(logits, batch["sort"])


def beans(width: int = 24, depth: int = 2, lr: float = 4e-3) -> Recipe:
    return Recipe(
        model=lambda: BeanNet(width, depth),
        data=lambda: Beans(480, seed=8, jitter=0.05),
        evaluation=lambda: Beans(60, seed=9),
        loss=bean_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.02),
        schedule=lambda step, steps: min(1.0, (step + 1) / 5),
        micro_batch_size=16,
        max_steps=50,
        max_grad_norm=1.0,
        evaluate_every=25,
    )
