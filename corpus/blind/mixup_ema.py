"""Small-image classification with flips, mixup and an EMA copy of the weights for evaluation."""
import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    seed: int = 21
    size: int = 12
    n_train: int = 960
    n_test: int = 400
    batch: int = 48
    epochs: int = 7
    lr: float = 2e-2
    mixup_alpha: float = 0.4
    ema_decay: float = 0.95


# 0 vertical, 1 horizontal, 2 rising diagonal, 3 falling diagonal, 4 blob, 5 plain noise
N_CLASSES = 6
MIRRORED = torch.tensor([0, 1, 3, 2, 4, 5])  # class of an image after a left-right flip


def draw(kind, size, rng):
    rows, cols = np.mgrid[0:size, 0:size].astype(float)
    phase, freq = rng.uniform(0, 2 * np.pi), rng.uniform(0.9, 1.3)
    if kind == 4:
        r0, c0 = rng.uniform(3, size - 4, size=2)
        image = 2 * np.exp(-((rows - r0) ** 2 + (cols - c0) ** 2) / 6) - 0.5
    elif kind == 5:
        image = np.zeros((size, size))
    else:
        direction = [cols, rows, (rows + cols) / 1.4, (rows - cols) / 1.4][kind]
        image = np.sin(freq * direction + phase)
    image = 110 + 28 * image + 45 * rng.normal(size=(size, size))
    return image.clip(0, 255).astype(np.uint8)


class Patterns(Dataset):
    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(N_CLASSES, size=n)
        self.images = np.stack([draw(k, size, rng) for k in self.labels])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), int(self.labels[i])


def to_input(images):
    """uint8 (N, H, W) -> float (N, 1, H, W), roughly zero mean and unit variance."""
    return (images.float().unsqueeze(1) / 255 - 0.43) / 0.2


def augment(x, y):
    """Random left-right flip; the two diagonals change places under it."""
    flip = torch.rand(len(x)) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    y = torch.where(flip, MIRRORED[y], y)
    return x, y


def mixup(x, targets, alpha):
    lam = float(np.random.beta(alpha, alpha))
    order = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[order], lam * targets + (1 - lam) * targets[order]


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, N_CLASSES),
    )


class EMA:
    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.model.parameters(), model.parameters()):
            ours.mul_(self.decay).add_(theirs, alpha=1 - self.decay)
        for ours, theirs in zip(self.model.buffers(), model.buffers()):
            ours.copy_(theirs)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = 0
    for images, labels in loader:
        hits += (model(to_input(images)).argmax(dim=1) == labels).sum().item()
    return hits / len(loader.dataset)


cfg = Settings()
torch.manual_seed(cfg.seed)
np.random.seed(cfg.seed)
train_loader = DataLoader(Patterns(cfg.n_train, cfg.size, cfg.seed), batch_size=cfg.batch, shuffle=True)
test_loader = DataLoader(Patterns(cfg.n_test, cfg.size, cfg.seed + 1), batch_size=200)

model = build_model()
ema = EMA(model, cfg.ema_decay)
optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=10 * cfg.lr, total_steps=cfg.epochs * len(train_loader), pct_start=0.3)

print(f"before: test accuracy {accuracy(ema.model, test_loader):.3f}")
for epoch in range(cfg.epochs):
    model.train()
    total = 0.0
    for images, labels in train_loader:
        x, y = augment(to_input(images), labels)
        x, targets = mixup(x, F.one_hot(y, N_CLASSES).float(), cfg.mixup_alpha)
        loss = -(targets * F.log_softmax(model(x), dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update(model)
        total += loss.item()
    print(f"epoch {epoch + 1}: mixup loss {total / len(train_loader):.4f}")
print(f"after: test accuracy {accuracy(ema.model, test_loader):.3f} (EMA weights), {accuracy(model, test_loader):.3f} (last weights)")
