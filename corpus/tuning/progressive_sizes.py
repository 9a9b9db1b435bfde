"""Textures told apart, trained on small pictures first and on larger ones later (progressive resizing)."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Phase:
    size: int
    batch: int
    epochs: int
    lr: float


@dataclass
class Config:
    phases: list[Phase] = field(
        default_factory=lambda: [Phase(8, 64, 3, 4e-3), Phase(16, 32, 3, 3e-3), Phase(24, 16, 2, 1e-3)]
    )
    classes: int = 4
    channels: int = 16
    weight_decay: float = 0.02
    seed: int = 12


def textures(n, rng, full=24):
    """Waves along one of two directions, long or short: four classes in shades of grey from 0 to 255."""
    label = rng.integers(0, 4, n)
    y, x = np.mgrid[:full, :full] / full
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    along = np.where((label % 2)[:, None, None] == 0, x, y)
    waves = np.sin(2 * np.pi * np.where(label < 2, 1.0, 2.5)[:, None, None] * along + phase)
    grey = 127 + 60 * waves + rng.normal(0, 20, (n, full, full))
    return np.clip(grey, 0, 255).astype(np.uint8), label


class TextureNet(nn.Module):
    """Of any input size: convolutions and a mean over the picture."""

    def __init__(self, cfg):
        super().__init__()
        c = cfg.channels
        self.conv1 = nn.Conv2d(1, c, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, c)
        self.conv2 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(4, 2 * c)
        self.out = nn.Linear(2 * c, cfg.classes)

    def forward(self, x):
        x = F.gelu(self.norm1(self.conv1(x)))
        x = F.gelu(self.norm2(self.conv2(x)))
        return self.out(x.mean(dim=(2, 3)))


def prepare(grey, size):
    x = torch.from_numpy(grey).float().div(255).sub(0.5).div(0.2).unsqueeze(1)
    return x if size == x.shape[-1] else F.interpolate(x, size=(size, size), mode="bilinear", antialias=True)


def accuracy(model, grey, label, size):
    model.eval()
    with torch.inference_mode():
        guess = [model(prepare(part, size)).argmax(1) for part in np.array_split(grey, 4)]
    return (torch.cat(guess).numpy() == label).mean()


def fit(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    grey, label = textures(256, rng)
    test_grey, test_label = textures(120, rng)
    model = TextureNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.phases[0].lr, weight_decay=cfg.weight_decay)
    for number, phase in enumerate(cfg.phases):
        for group in optimizer.param_groups:
            group["lr"] = phase.lr
        for _ in range(phase.epochs):
            model.train()
            order = rng.permutation(len(grey))
            for at in range(0, len(order), phase.batch):
                rows = order[at : at + phase.batch]
                logits = model(prepare(grey[rows], phase.size))
                loss = F.cross_entropy(logits, torch.from_numpy(label[rows]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        full = accuracy(model, test_grey, test_label, cfg.phases[-1].size)
        own = accuracy(model, test_grey, test_label, phase.size)
        print(f"phase {number} at {phase.size}: loss {loss.item():.3f}, here {own:.3f}, at full size {full:.3f}")
    return model


if __name__ == "__main__":
    fit(Config())
