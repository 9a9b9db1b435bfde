"""Glyphs in half precision: autocast, a gradient scaler, accumulation over two batches, cosine rate by epochs."""

import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class GlyphSet(torch.utils.data.Dataset):
    def __init__(self, strokes, kinds):
        self.strokes, self.kinds = strokes, kinds

    def __getitem__(self, index):
        glyph = torch.from_numpy(self.strokes[index]).float() / 255.0
        return glyph.unsqueeze(0), int(self.kinds[index])

    def __len__(self):
        return len(self.kinds)


def draw(rng, alphabet, copies):
    kinds = rng.permutation(np.repeat(np.arange(len(alphabet)), copies))
    strokes = alphabet[kinds] * rng.uniform(0.6, 1.0, (len(kinds), 1, 1)) + rng.integers(0, 50, (len(kinds), 12, 12))
    return GlyphSet(np.clip(strokes, 0, 255).astype(np.uint8), kinds)


def build_net(classes):
    return nn.Sequential(
        nn.Conv2d(1, 12, kernel_size=3, padding=1),
        nn.GroupNorm(3, 12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16 * 9, classes),
    )


def train_epoch(net, loader, optim, scaler, loss_fn, every):
    net.train()
    running, n = 0.0, 0
    optim.zero_grad(set_to_none=True)
    for i, (glyphs, kinds) in enumerate(loader):
        with autocast("cpu", dtype=torch.float16):
            logits = net(glyphs)
        loss = loss_fn(logits.float(), kinds)
        scaler.scale(loss / every).backward()
        running += loss.item() * len(kinds)
        n += len(kinds)
        if (i + 1) % every == 0:
            scaler.unscale_(optim)
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
            scaler.step(optim)
            scaler.update()
            optim.zero_grad(set_to_none=True)
    return running / n


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    right = total = 0
    for glyphs, kinds in loader:
        with autocast("cpu", dtype=torch.float16):
            logits = net(glyphs)
        right += int((logits.argmax(-1) == kinds).sum())
        total += len(kinds)
    return right / total


def save(path, net, optim, scaler, sched, epoch):
    torch.save(
        {
            "net": net.state_dict(),
            "optim": optim.state_dict(),
            "scaler": scaler.state_dict(),
            "sched": sched.state_dict(),
            "epoch": epoch,
        },
        path,
    )


def run():
    seed_everything(4)
    rng = np.random.default_rng(4)
    alphabet = rng.integers(0, 2, (6, 12, 12)) * 200
    train, test = draw(rng, alphabet, 32), draw(rng, alphabet, 10)
    train_loader = torch.utils.data.DataLoader(train, batch_size=16, shuffle=True)
    test_loader = torch.utils.data.DataLoader(test, batch_size=25)
    net = build_net(len(alphabet))
    optim = torch.optim.AdamW(net.parameters(), lr=6e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=4)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(4):
        mean_loss = train_epoch(net, train_loader, optim, scaler, loss_fn, every=2)
        sched.step()
        print(epoch, round(mean_loss, 3), round(accuracy(net, test_loader), 3))
        save("glyphs.tmp", net, optim, scaler, sched, epoch)
        os.replace("glyphs.tmp", "glyphs.pt")


if __name__ == "__main__":
    run()
