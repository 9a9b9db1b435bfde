"""A small ResNet as a recipe: batch norm, decay for matrices only, warm-up and cosine."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.techniques.schedule import warmup_cosine


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        return F.relu(x + h)


class ResNet(nn.Module):
    def __init__(self, channels: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*[Residual(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        h = self.blocks(self.stem(pictures))
        return self.head(h.mean(dim=(2, 3)))


def pictures(samples: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 6, (samples,), generator=generator)
    return TensorDataset(kinds[labels] + 0.5 * torch.randn(samples, 3, 12, 12, generator=generator), labels)


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    images, labels = batch
    logits = model(images)
    return F.cross_entropy(logits, labels, reduction="sum"), len(labels)


def resnet(channels: int = 8, blocks: int = 2, lr: float = 0.05) -> Recipe:
    return Recipe(
        model=lambda: ResNet(channels, blocks, classes=6),
        data=lambda: pictures(384, seed=1),
        evaluation=lambda: pictures(48, seed=2),
        loss=class_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=1e-4),
        schedule=warmup_cosine(warmup_steps=5),
        decay="matrices",
        micro_batch_size=32,
        max_steps=80,
        evaluate_every=40,
    )
