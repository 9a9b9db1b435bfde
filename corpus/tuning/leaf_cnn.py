"""Species of leaves from small pictures: a configuration, a data set that augments, workers, best weights kept."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES, SIDE = 4, 20


@dataclass
class Config:
    pictures: int = 240
    validation: int = 50
    batch_size: int = 16
    epochs: int = 3
    lr: float = 0.05
    channels: int = 10
    dropout: float = 0.2
    workers: int = 2


def draw_leaves(count, seed):
    """Pictures of bytes: outlines of four kinds, somewhere, on a mottled ground."""
    rng = np.random.default_rng(seed)
    species = rng.integers(0, SPECIES, count)
    down, across = np.mgrid[0:SIDE, 0:SIDE].astype(float)
    pictures = rng.normal(70, 30, (count, SIDE, SIDE))
    for i, kind in enumerate(species):
        y, x = down - rng.uniform(7, 13), across - rng.uniform(7, 13)
        outline = [x**2 + y**2, x**2 + 6 * y**2, 6 * x**2 + y**2, 4 * np.abs(x * y) + 3][kind]
        pictures[i] += 110 * (outline < 25)
    return np.clip(pictures, 0, 255).astype(np.uint8), species


class Leaves(Dataset):
    def __init__(self, pictures, species, augment):
        self.pictures, self.species, self.augment = pictures, species, augment

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float() / 255
        picture = (picture - 0.4) / 0.22
        if self.augment:
            if torch.rand(()) < 0.5:
                picture = picture.flip(1)
            picture = picture + 0.2 * torch.randn(picture.shape)
        return picture.unsqueeze(0), int(self.species[index])


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class LeafNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels = config.channels
        self.stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(3)])
        self.neck = nn.Sequential(nn.Linear(channels * 4, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.species = nn.Linear(32, SPECIES)

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        x = self.neck(F.adaptive_max_pool2d(x, 2).flatten(1))
        x = self.dropout(x)
        return self.species(x)


def loaders(config):
    pictures, species = draw_leaves(config.pictures + config.validation, seed=31)
    cut = config.pictures
    train_set = Leaves(pictures[:cut], species[:cut], augment=True)
    valid_set = Leaves(pictures[cut:], species[cut:], augment=False)
    train_loader = DataLoader(train_set, config.batch_size, shuffle=True, num_workers=config.workers)
    valid_loader = DataLoader(valid_set, config.batch_size)
    return train_loader, valid_loader


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for pictures, species in loader:
        right += (model(pictures).argmax(dim=1) == species).sum().item()
        total += len(species)
    return right / total


def fit(config):
    torch.manual_seed(14)
    train_loader, valid_loader = loaders(config)
    model = LeafNet(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    best, best_weights = 0.0, copy.deepcopy(model.state_dict())
    for epoch in range(config.epochs):
        model.train()
        for pictures, species in train_loader:
            loss = F.cross_entropy(model(pictures), species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        reached = accuracy(model, valid_loader)
        if reached > best:
            best, best_weights = reached, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: last loss {loss.item():.3f}, {reached:.2f} of the species right")
    model.load_state_dict(best_weights)
    print(f"best: {accuracy(model, valid_loader):.2f}")


if __name__ == "__main__":
    fit(Config())
