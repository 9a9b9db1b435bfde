"""Postage stamps by country: a convolutional recipe with its own activation function, noise as augmentation."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

COUNTRIES = 4


class SoftSign(torch.autograd.Function):
    """x / (1 + |x|), which keeps only its denominator for the way back."""

    @staticmethod
    def forward(ctx, x):
        below = 1 + x.abs()
        ctx.save_for_backward(below)
        return x / below

    @staticmethod
    def backward(ctx, grad):
        (below,) = ctx.saved_tensors
        return grad / below.square()


class Stamps(Dataset):
    def __init__(self, count: int, seed: int, noisy: bool) -> None:
        rng = np.random.default_rng(seed)
        self.noisy = noisy
        self.country = rng.integers(0, COUNTRIES, count)
        across, down = np.meshgrid(np.linspace(-1, 1, 10), np.linspace(-1, 1, 10))
        designs = np.stack([across, down, across * down, across**2 - down**2])
        self.stamps = (designs[self.country] + rng.normal(0, 0.5, (count, 10, 10))).astype(np.float32)

    def __len__(self) -> int:
        return len(self.stamps)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        stamp = torch.from_numpy(self.stamps[index])
        if self.noisy:
            stamp = stamp + 0.2 * torch.randn(10, 10)
        return stamp.unsqueeze(0), int(self.country[index])


class Stage(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + SoftSign.apply(self.norm(self.conv(x)))


class StampNet(nn.Module):
    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(1, channels, 3, padding=1)
        self.stages = nn.Sequential(*[Stage(channels) for _ in range(depth)])
        self.country = nn.Linear(channels * 4, COUNTRIES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        x = self.stages(x)
        return self.country(F.adaptive_avg_pool2d(x, 2).flatten(1))


def stamp_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    stamps, country = batch
    return F.cross_entropy(model(stamps), country)


def stamps(channels: int = 10, depth: int = 2, lr: float = 0.05) -> Recipe:
    return Recipe(
        model=lambda: StampNet(channels, depth),
        data=lambda: Stamps(256, seed=1, noisy=True),
        evaluation=lambda: Stamps(48, seed=2, noisy=False),
        loss=stamp_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        micro_batch_size=16,
        max_steps=40,
        evaluate_every=20,
    )
