"""A denoising autoencoder as a recipe, with noise drawn by the data set."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe


class Noisy(Dataset):
    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.clean = torch.randn(samples, 4, generator=generator) @ torch.randn(4, 16, generator=generator)

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.clean[index] + 0.2 * torch.randn(16), self.clean[index]


def rebuilt(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    noisy, clean = batch
    return (model(noisy) - clean).square().sum(), clean.numel()


def denoiser(width: int = 24, lr: float = 2e-3) -> Recipe:
    return Recipe(
        model=lambda: nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 16)),
        data=lambda: Noisy(320),
        loss=rebuilt,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=lr),
        micro_batch_size=16,
        max_steps=50,
    )
