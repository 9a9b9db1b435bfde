"""Woven textures: a small conv net with mixup, label smoothing, flips, an average of weights, flips at test time."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ["plain", "twill", "basket", "stripe"]


def weave(kind, rng):
    i, j = np.mgrid[0:16, 0:16]
    a, b = rng.integers(0, 4, 2)
    if kind == 0:
        pattern = (i + a + j + b) % 2
    elif kind == 1:
        pattern = (i + j + a) % 4 < 2
    elif kind == 2:
        pattern = ((i + a) // 2 + (j + b) // 2) % 2
    else:
        pattern = (i + a) % 4 < 2
    image = pattern * rng.uniform(60, 120) + rng.uniform(40, 90) + rng.normal(0, 18, (16, 16))
    return image.clip(0, 255).astype(np.uint8)


class Weaves(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 4, n)
        self.images = np.stack([weave(k, rng) for k in self.labels])
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.tensor(self.images[i], dtype=torch.float32)[None] / 255.0
        image = (image - 0.45) / 0.22
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, int(self.labels[i])


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


def build():
    return nn.Sequential(
        conv(1, 12),
        conv(12, 16),
        nn.MaxPool2d(2),
        conv(16, 24),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )


def mixup(images, labels, alpha=0.3):
    lam = float(np.random.beta(alpha, alpha))
    other = torch.randperm(len(images))
    return lam * images + (1 - lam) * images[other], labels, labels[other], lam


@torch.no_grad()
def average(shadow, model, decay):
    for s, p in zip(shadow.parameters(), model.parameters(), strict=True):
        s.lerp_(p, 1 - decay)
    for s, b in zip(shadow.buffers(), model.buffers(), strict=True):
        s.copy_(b)


@torch.no_grad()
def accuracy(model, loader, flips):
    model.eval()
    hits = 0
    for images, labels in loader:
        probabilities = model(images).softmax(dim=1)
        if flips:
            probabilities = (
                probabilities + model(images.flip(-1)).softmax(dim=1) + model(images.flip(-2)).softmax(dim=1)
            )
        hits += (probabilities.argmax(dim=1) == labels).sum().item()
    return hits / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(64)
    np.random.seed(64)
    train_loader = DataLoader(Weaves(320, seed=1, augment=True), batch_size=32, shuffle=True, drop_last=True)
    test_loader = DataLoader(Weaves(100, seed=2, augment=False), batch_size=50)
    net = build()
    shadow = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, epochs=5, steps_per_epoch=len(train_loader))
    for epoch in range(5):
        net.train()
        losses = []
        for images, labels in train_loader:
            mixed, a, b, lam = mixup(images, labels)
            logits = net(mixed)
            loss = lam * F.cross_entropy(logits, a, label_smoothing=0.1)
            loss = loss + (1 - lam) * F.cross_entropy(logits, b, label_smoothing=0.1)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            average(shadow, net, decay=0.9)
            losses.append(loss.item())
        plain, mean = accuracy(net, test_loader, flips=False), accuracy(shadow, test_loader, flips=True)
        print(f"epoch {epoch} loss {np.mean(losses):.3f} accuracy {plain:.2f}, averaged and flipped {mean:.2f}")
