"""Moths in light traps: a small ResNet, accumulation over micro-batches, flips in worker processes."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int = 4
    micro_batch: int = 16
    accumulate: int = 2
    lr: float = 0.05
    clip: float = 1.0
    species: int = 4


class Moths(Dataset):
    """Photographs as bytes, height by width by colour."""

    def __init__(self, count, seed, species, augment):
        rng = np.random.default_rng(seed)
        self.augment = augment
        self.species = rng.integers(0, species, count)
        self.photos = rng.integers(0, 140, (count, 16, 16, 3)).astype(np.uint8)
        for photo, kind in zip(self.photos, self.species, strict=True):
            x, y = rng.integers(2, 8, 2)
            photo[y : y + 6, x : x + 6, kind % 3] += 90
            if kind == 3:
                photo[y + 2 : y + 4, x : x + 6, 1] += 90

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        photo = torch.from_numpy(self.photos[index]).permute(2, 0, 1).float() / 255
        photo = (photo - 0.3) / 0.2
        if self.augment:
            if torch.rand(()) < 0.5:
                photo = photo.flip(-1)
            photo = photo + 0.1 * torch.randn(photo.shape)
        return photo, int(self.species[index])


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(self.short(x) + y)


class MothNet(nn.Module):
    def __init__(self, species, channels=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.stages = nn.Sequential(Residual(channels, channels, 1), Residual(channels, 2 * channels, 2))
        self.drop = nn.Dropout(0.1)
        self.classify = nn.Linear(2 * channels, species)

    def forward(self, x):
        x = self.stages(self.stem(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.classify(self.drop(x))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = MothNet(config.species)
        train_set = Moths(216, 1, config.species, augment=True)
        valid_set = Moths(60, 2, config.species, augment=False)
        self.train_loader = DataLoader(train_set, config.micro_batch, shuffle=True, drop_last=True, num_workers=2)
        self.valid_loader = DataLoader(valid_set, config.micro_batch)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9, weight_decay=5e-4)
        windows = -(-len(self.train_loader) // config.accumulate)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, config.epochs * windows)

    def run_epoch(self):
        self.model.train()
        total, batches = 0.0, len(self.train_loader)
        self.optimizer.zero_grad()
        for number, (photos, species) in enumerate(self.train_loader):
            first = number - number % self.config.accumulate
            parts = min(self.config.accumulate, batches - first)
            loss = F.cross_entropy(self.model(photos), species)
            (loss / parts).backward()
            total += loss.item()
            if number == first + parts - 1:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
        return total / batches

    def validate(self):
        self.model.eval()
        right = 0
        with torch.inference_mode():
            for photos, species in self.valid_loader:
                right += (self.model(photos).argmax(1) == species).sum().item()
        return right / len(self.valid_loader.dataset)

    def fit(self):
        for epoch in range(self.config.epochs):
            loss = self.run_epoch()
            print(f"epoch {epoch} loss {loss:.3f} right {self.validate():.3f}")
        torch.save({"model": self.model.state_dict(), "config": vars(self.config)}, "moths.pt")


if __name__ == "__main__":
    torch.manual_seed(17)
    Trainer(Config()).fit()
