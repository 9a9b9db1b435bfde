"""Photographs of coins, four denominations: a little ResNet with cut-out holes as augmentation, a Trainer class."""

import contextlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

MEAN, STD = 0.35, 0.22
COINS = ("penny", "nickel", "dime", "quarter")


def photograph(kind, rng):
    """A bright disc with as many rings as the kind says, 16 by 16, in bytes."""
    y, x = np.mgrid[:16, :16]
    cy, cx = 7.5 + rng.uniform(-1.5, 1.5, 2)
    radius = np.hypot(y - cy, x - cx)
    face = np.where(radius < 6.5, 0.45 + 0.25 * np.cos(radius * (0.6 + 0.45 * kind)), 0.15)
    face = face + rng.normal(0, 0.06, face.shape)
    return (np.clip(face, 0, 1) * 255).astype(np.uint8)[None]


class Coins(Dataset):
    def __init__(self, images, kinds, augment):
        self.images, self.kinds, self.augment = images, kinds, augment

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32) / 255
        image = (image - MEAN) / STD
        if self.augment:
            if torch.rand(()) < 0.5:
                image = image[:, :, ::-1]
            top, left = torch.randint(0, 13, (2,)).tolist()
            image = image.copy()
            image[:, top : top + 3, left : left + 3] = 0
        return torch.from_numpy(np.ascontiguousarray(image)), int(self.kinds[i])


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.skip = nn.Identity()
        if stride != 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        branch = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(branch)) + self.skip(x))


class CoinNet(nn.Module):
    def __init__(self, width=12, depth=2):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = nn.Sequential(*[Block(width, width, 1) for _ in range(depth)])
        self.stage2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.head = nn.Linear(2 * width, len(COINS))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


@contextlib.contextmanager
def evaluating(model):
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(before)


class Trainer:
    def __init__(self, model, train, held, epochs):
        self.model, self.train_loader, self.held_loader, self.epochs = model, train, held, epochs
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, milestones=[2], gamma=0.2)

    def one_epoch(self):
        total = 0.0
        for images, kinds in self.train_loader:
            loss = self.criterion(self.model(images), kinds)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(kinds)
        self.schedule.step()
        return total / len(self.train_loader.dataset)

    def accuracy(self):
        with evaluating(self.model):
            hits = [(self.model(images).argmax(1) == kinds) for images, kinds in self.held_loader]
        return torch.cat(hits).float().mean().item()

    def fit(self):
        self.model.train()
        for epoch in range(self.epochs):
            print(f"{epoch}: loss {self.one_epoch():.3f}  held out {self.accuracy():.3f}")


def loaders(batch):
    rng = np.random.default_rng(77)
    kinds = rng.integers(0, len(COINS), 326)
    images = np.stack([photograph(kind, rng) for kind in kinds])
    train = Subset(Coins(images, kinds, augment=True), range(256))
    held = Subset(Coins(images, kinds, augment=False), range(256, 326))
    return (
        DataLoader(train, batch_size=batch, shuffle=True, drop_last=True),
        DataLoader(held, batch_size=24),
    )


if __name__ == "__main__":
    torch.manual_seed(77)
    network = CoinNet()
    trainer = Trainer(network, *loaders(batch=32), epochs=3)
    trainer.fit()
    torch.save(network.state_dict(), "coins.pt")
