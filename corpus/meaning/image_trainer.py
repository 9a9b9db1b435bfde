"""Shape classification on small noisy images, with a small ResNet-like network and a Trainer class."""
import argparse
import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["disc", "ring", "square", "cross", "stripes"]


@dataclass
class Config:
    samples: int = 1500
    size: int = 18
    width: int = 16
    batch: int = 64
    epochs: int = 7
    lr: float = 4e-3
    weight_decay: float = 0.02
    warmup: int = 10
    mixup_alpha: float = 0.2
    clip: float = 2.0
    seed: int = 7


def draw(kind, size, rng):
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    cy, cx = rng.uniform(size * 0.35, size * 0.65, 2)
    r = rng.uniform(size * 0.2, size * 0.32)
    dist = np.hypot(yy - cy, xx - cx)
    box = np.maximum(abs(yy - cy), abs(xx - cx))
    if kind == "disc":
        mask = dist < r
    elif kind == "ring":
        mask = abs(dist - r) < 1.3
    elif kind == "square":
        mask = box < r * 0.9
    elif kind == "cross":
        mask = (np.minimum(abs(yy - cy), abs(xx - cx)) < 1.2) & (box < r * 1.2)
    else:
        mask = (box < r * 1.1) & ((yy - cy) % 4 < 2)
    color = rng.uniform(0.4, 1.0, (3, 1, 1))
    return mask[None] * color + 0.15 + rng.normal(0, 0.22, (3, size, size))


def make_splits(cfg):
    rng = np.random.default_rng(cfg.seed)
    labels = rng.integers(0, len(CLASSES), cfg.samples)
    images = torch.tensor(np.stack([draw(CLASSES[k], cfg.size, rng) for k in labels]), dtype=torch.float32)
    labels = torch.tensor(labels)
    order = torch.from_numpy(rng.permutation(cfg.samples))
    n_train, n_val = int(cfg.samples * 0.64), int(cfg.samples * 0.16)
    train_idx, val_idx = order[:n_train], order[n_train:n_train + n_val]
    test_idx = order[n_train + n_val:]
    std, mean = torch.std_mean(images[train_idx], dim=(0, 2, 3), keepdim=True)
    images = (images - mean) / std
    return [TensorDataset(images[i], labels[i]) for i in (train_idx, val_idx, test_idx)]


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class ShapeNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.body = nn.Sequential(Block(3, width, 1), Block(width, 2 * width, 2), Block(2 * width, 2 * width, 2))
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.drop(self.body(x).mean(dim=(2, 3))))


def param_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


class Trainer:
    def __init__(self, cfg, model, train_set, val_set, test_set):
        self.cfg, self.model = cfg, model
        self.train_loader = DataLoader(train_set, cfg.batch, shuffle=True, drop_last=True)
        self.val_loader, self.test_loader = DataLoader(val_set, 120), DataLoader(test_set, 120)
        self.optimizer = torch.optim.AdamW(param_groups(model, cfg.weight_decay), lr=cfg.lr)
        self.total_steps = cfg.epochs * len(self.train_loader)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.lr_factor)
        self.best_acc, self.best_state = -1.0, None

    def lr_factor(self, step):
        if step < self.cfg.warmup:
            return (step + 1) / self.cfg.warmup
        progress = (step - self.cfg.warmup) / (self.total_steps - self.cfg.warmup)
        return 0.5 * (1 + math.cos(math.pi * progress))

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for images, labels in self.train_loader:
            if torch.rand(()) < 0.5:
                images = images.flip(-1)
            lam = float(np.random.beta(self.cfg.mixup_alpha, self.cfg.mixup_alpha))
            perm = torch.randperm(len(images))
            logits = self.model(lam * images + (1 - lam) * images[perm])
            loss = lam * F.cross_entropy(logits, labels) + (1 - lam) * F.cross_entropy(logits, labels[perm])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        hits = count = 0
        for images, labels in loader:
            hits += (self.model(images).argmax(1) == labels).sum().item()
            count += len(labels)
        return hits / count

    def fit(self):
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            acc = self.evaluate(self.val_loader)
            if acc > self.best_acc:
                self.best_acc = acc
                self.best_state = deepcopy(self.model.state_dict())
            print(f"epoch {epoch}: train loss {loss:.4f}, val acc {acc:.3f}")
        self.model.load_state_dict(self.best_state)
        return loss, self.best_acc, self.evaluate(self.test_loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=parser.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)
    trainer = Trainer(cfg, ShapeNet(cfg.width, len(CLASSES)), *make_splits(cfg))
    loss, val_acc, test_acc = trainer.fit()
    print(f"final train loss {loss:.4f}, best val acc {val_acc:.3f}, test acc {test_acc:.3f}")


if __name__ == "__main__":
    main()
