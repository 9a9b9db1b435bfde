"""Kinds of clouds in small pictures of the sky: a file of uint8 pictures, flips and shades in workers, a small CNN."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("cirrus", "cumulus", "stratus", "clear")


@dataclass
class Config:
    size: int = 20
    train: int = 384
    val: int = 100
    batch: int = 32
    epochs: int = 5
    lr: float = 3e-3
    workers: int = 2
    clip: float = 0.5
    seed: int = 4


def photograph(count: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of height x width x colour and the numbers of their kinds."""
    kinds = rng.integers(len(KINDS), size=count)
    y, x = np.mgrid[0:size, 0:size] / size
    white = np.zeros((count, size, size))
    for i, kind in enumerate(kinds):
        a, b = rng.uniform(0.2, 0.8, 2)
        if kind == 0:
            white[i] = 0.5 + 0.5 * np.sin(30 * (x * a + y * b))
        elif kind == 1:
            white[i] = np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.04)
        elif kind == 2:
            white[i] = 1 / (1 + np.exp(20 * (y - a)))
    white = np.clip(white + 0.15 * rng.standard_normal(white.shape), 0, 1)[..., None]
    sky = np.array([70, 120, 200]) * (1 - white) + np.array([235, 235, 240]) * white
    return sky.astype(np.uint8), kinds


class Clouds(Dataset):
    def __init__(self, images: np.ndarray, kinds: np.ndarray, augment: bool) -> None:
        self.images, self.kinds, self.augment = images, kinds, augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        image = torch.from_numpy(self.images[index]).permute(2, 0, 1).float() / 255
        if self.augment:
            if np.random.rand() < 0.5:
                image = image.flip(-1)
            image = (image * np.random.uniform(0.85, 1.15)).clamp(0, 1)
        return (image - 0.5) / 0.25, int(self.kinds[index])


def calibrated_stem(images: np.ndarray) -> nn.Sequential:
    """Fixed filters for edges and brightness, with the statistics of the training pictures."""
    edge = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    filters = torch.stack([edge, edge.T, torch.full((3, 3), 1 / 9), torch.eye(3) / 3])
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, affine=False))
    stem[0].weight.data = filters[:, None].repeat(1, 3, 1, 1) / 3
    with torch.no_grad():
        pictures = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
        response = stem[0](pictures)
    stem[1].running_mean.copy_(response.mean(dim=(0, 2, 3)))
    stem[1].running_var.copy_(response.var(dim=(0, 2, 3)))
    return stem.requires_grad_(False).eval()


class CloudNet(nn.Module):
    def __init__(self, stem: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.stem = stem
        self.first = nn.Sequential(nn.Conv2d(4, width, 3, padding=1), nn.BatchNorm2d(width), nn.SiLU())
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.SiLU())
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, len(KINDS))

    def train(self, mode: bool = True):
        super().train(mode)
        self.stem.eval()
        return self

    def forward(self, x):
        x = F.max_pool2d(self.first(self.stem(x)), 2)
        x = F.max_pool2d(self.second(x), 2)
        x = self.dropout(x.mean(dim=(2, 3)))
        return self.head(x)


def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    right = total = 0
    summed = 0.0
    with torch.no_grad():
        for images, kinds in loader:
            logits = model(images)
            summed += F.cross_entropy(logits, kinds, reduction="sum").item()
            right += (logits.argmax(dim=1) == kinds).sum().item()
            total += len(kinds)
    return summed / total, right / total


def fit(config: Config) -> None:
    torch.manual_seed(4)
    rng = np.random.default_rng(config.seed)
    images, kinds = photograph(config.train + config.val, config.size, rng)
    np.savez("clouds.npz", images=images, kinds=kinds)
    stored = np.load("clouds.npz")
    images, kinds = stored["images"], stored["kinds"]
    train_set = Clouds(images[: config.train], kinds[: config.train], augment=True)
    val_set = Clouds(images[config.train :], kinds[config.train :], augment=False)
    train_loader = DataLoader(
        train_set, batch_size=config.batch, shuffle=True, num_workers=config.workers, persistent_workers=True
    )
    val_loader = DataLoader(val_set, batch_size=config.batch)

    model = CloudNet(calibrated_stem(images[: config.train]))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=config.epochs)
    for epoch in range(config.epochs):
        model.train()
        seen = summed = 0.0
        for images, kinds in train_loader:
            optimizer.zero_grad()
            logits = model(images)
            loss = F.cross_entropy(logits, kinds)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            summed += loss.item() * len(kinds)
            seen += len(kinds)
        scheduler.step()
        val_loss, accuracy = evaluate(model, val_loader)
        print(f"epoch {epoch + 1}: train {summed / seen:.3f} val {val_loss:.3f} right {accuracy:.1%}")
    torch.save({"model": model.state_dict(), "kinds": KINDS}, "clouds.pt")


if __name__ == "__main__":
    fit(Config())
