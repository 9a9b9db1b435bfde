"""Photographs of leaves by species: a plain CNN as a recipe, flips in the data set, a sum and a count as its loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe
from surefoot.techniques.schedule import warmup_cosine

SPECIES = 6


class Leaves(Dataset):
    def __init__(self, count: int, seed: int, train: bool) -> None:
        draw = torch.Generator().manual_seed(seed)
        shapes = torch.randint(30, 220, (SPECIES, 3, 10, 10), generator=torch.Generator().manual_seed(77))
        self.species = torch.randint(SPECIES, (count,), generator=draw)
        spots = torch.randint(-30, 31, (count, 3, 10, 10), generator=draw)
        self.photos = (shapes[self.species] + spots).clamp(0, 255).byte()
        self.train = train

    def __len__(self) -> int:
        return len(self.species)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        photo = self.photos[index].float() / 127.5 - 1
        if self.train and torch.rand(()) < 0.3:
            photo = photo.flip(-1)
        return {"photo": photo, "species": self.species[index]}


class LeafNet(nn.Module):
    def __init__(self, width: int, drop: float = 0.15) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.hidden = nn.Linear(2 * width * 25, 32)
        self.drop = nn.Dropout(drop)
        self.scale = nn.Parameter(torch.ones(32))
        self.head = nn.Linear(32, SPECIES)

    def forward(self, photo: Tensor) -> Tensor:
        maps = self.features(photo)
        summary = torch.relu(self.hidden(maps.flatten(1))) * self.scale
        return self.head(self.drop(summary))


def species_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    target = batch["species"]
    scores = model(batch["photo"])
    return F.cross_entropy(scores, target, label_smoothing=0.02, reduction="sum"), len(target)


def leaves(width: int = 8, lr: float = 2e-3) -> Recipe:
    return Recipe(
        model=lambda: LeafNet(width),
        data=lambda: Leaves(320, seed=5, train=True),
        evaluation=lambda: Leaves(48, seed=6, train=False),
        loss=species_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        schedule=warmup_cosine(warmup_steps=4),
        micro_batch_size=16,
        max_grad_norm=2.0,
        max_steps=50,
        evaluate_every=25,
    )
