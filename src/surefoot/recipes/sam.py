"""sam: sharpness-aware minimisation (arXiv:2010.01412). Each update takes the gradient at the worst point nearby."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.recipe.ranges import Count, Rate

CLASSES = 3


def spirals(count: int, seed: int) -> TensorDataset:
    """Three arms of a spiral, with noise."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=draws)
    radius = torch.rand(count, generator=draws)
    angle = 4 * radius + labels * (2 * torch.pi / CLASSES) + 0.2 * torch.randn(count, generator=draws)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels)


def accuracy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[Tensor, int]]:
    x, y = batch
    return {"accuracy": ((model(x).argmax(1) == y).sum(), len(y))}


def sam(hidden: Count = 64, lr: Rate = 0.1, radius: Rate = 0.05, max_steps: Count = 1000) -> Recipe:
    def update(model: nn.Module, optimizer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Climbs to the worst point within `radius`, takes the gradient there, goes back and descends with it."""
        x, y = batch
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
            climbed = [gradient * (radius / (norm + 1e-12)) for gradient in gradients]
            for parameter, by in zip(model.parameters(), climbed, strict=True):
                parameter.add_(by)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter, by in zip(model.parameters(), climbed, strict=True):
                parameter.sub_(by)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Recipe(
        model=lambda: nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
        ),
        data=lambda: spirals(2048, seed=1),
        evaluation=lambda: spirals(1024, seed=2),
        evaluate_every=max(1, max_steps // 10),
        evaluation_batches=None,
        step=update,
        metrics=accuracy,
        best="accuracy",
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9),
        micro_batch_size=128,
        max_steps=max_steps,
        about="three arms of a spiral, by sharpness-aware minimisation",
    )
