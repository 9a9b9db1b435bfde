"""Patterns of tiles, a script with options: 8-bit images shifted at random in two workers, batch norm, a checkpoint."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


def make_tiles(count, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, count)
    rows, cols = np.mgrid[0:12, 0:12]
    shapes = np.stack([rows % 4 < 2, cols % 4 < 2, (rows + cols) % 4 < 2, (rows // 3 + cols // 3) % 2 == 0])
    pixels = 60 + 120 * shapes[kind] + rng.normal(0, 25, (count, 12, 12))
    return pixels.clip(0, 255).astype(np.uint8), kind


class Tiles(Dataset):
    def __init__(self, images, kinds, shift):
        self.images = images
        self.kinds = kinds
        self.shift = shift

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.shift:
            image = np.roll(image, np.random.randint(0, 12, 2), axis=(0, 1))
        tensor = torch.from_numpy(image.astype(np.float32) / 255.0).unsqueeze(0)
        return (tensor - 0.47) / 0.25, int(self.kinds[index])


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(16, 4)

    def forward(self, x):
        x = self.features(x)
        x = x.mean(dim=(2, 3))
        return F.log_softmax(self.classifier(x), dim=1)


def validate(net, loader):
    net.eval()
    correct, seen, nll = 0, 0, 0.0
    with torch.no_grad():
        for image, kind in loader:
            scores = net(image)
            nll += F.nll_loss(scores, kind, reduction="sum").item()
            correct += int((scores.argmax(1) == kind).sum())
            seen += len(kind)
    return nll / seen, correct / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_set = Tiles(*make_tiles(192, seed=1), shift=True)
    val_set = Tiles(*make_tiles(56, seed=2), shift=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=32)
    net = ConvNet()
    optimizer = optim.AdamW(net.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    curve = []
    for epoch in range(args.epochs):
        net.train()
        for image, kind in train_loader:
            scores = net(image)
            loss = F.nll_loss(scores, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        scheduler.step()
        nll, accuracy = validate(net, val_loader)
        print(f"epoch {epoch}: train {np.mean(curve[-12:]):.3f} val {nll:.3f} accuracy {accuracy:.2f}")
    torch.save({"net": net.state_dict(), "args": vars(args)}, "tiles.pt")


if __name__ == "__main__":
    main()
