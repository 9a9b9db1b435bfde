"""Diseases on leaves of vines: the night's training stops after some epochs and the next one goes on from its file."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DISEASES = ("healthy", "mildew", "esca", "rot")
ACCUM = 2


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--night", type=int, default=2, help="epochs before the first night ends")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--file", default="vineyard.pt")
    return parser.parse_args([])


def pictures(count, seed):
    """Leaves of 12 x 12 pixels in bytes: spots, streaks or a brown edge on green."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(DISEASES), count)
    leaves = rng.normal((60, 140, 50), 22, (count, 12, 12, 3))
    for leaf, disease in zip(leaves, kind, strict=True):
        row, column = rng.integers(1, 8, 2)
        if disease == 1:
            leaf[row : row + 4, column : column + 4] += 70
        elif disease == 2:
            leaf[:, column : column + 2] += (110, -20, 0)
        elif disease == 3:
            leaf[-3:] -= (0, 80, 20)
    return leaves.clip(0, 255).astype(np.uint8), kind


class Leaves(Dataset):
    def __init__(self, count, seed, augment):
        self.leaves, self.kind = pictures(count, seed)
        self.augment = augment

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        leaf = self.leaves[index]
        if self.augment:
            if np.random.rand() < 0.5:
                leaf = leaf[:, ::-1]
            leaf = np.roll(leaf, np.random.randint(-1, 2), axis=1)
        leaf = torch.from_numpy(leaf.copy()).permute(2, 0, 1).float() / 255
        return (leaf - 0.4) / 0.2, int(self.kind[index])


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(24 * 9, len(DISEASES)))

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train_epoch(model, loader, optimizer, scheduler, criterion):
    model.train()
    total = 0.0
    optimizer.zero_grad()
    for i, (leaves, kinds) in enumerate(loader):
        last = i + 1 == len(loader)
        group = len(loader) % ACCUM if last and len(loader) % ACCUM else ACCUM
        loss = criterion(model(leaves), kinds)
        (loss / group).backward()
        if (i + 1) % ACCUM == 0 or last:
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        total += loss.item() * len(kinds)
    return total / len(loader.dataset)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total, right, count = 0.0, 0, 0
    for leaves, kinds in loader:
        scores = model(leaves)
        total += criterion(scores, kinds).item() * len(kinds)
        right += (scores.argmax(1) == kinds).sum().item()
        count += len(kinds)
    return total / count, right / count


def night(args, first, until):
    """Epochs up to `until`; all but the first night begin with what the file holds."""
    seed_everything(args.seed)
    order = torch.Generator().manual_seed(args.seed)
    train_set, valid_set = Leaves(336, 1, augment=True), Leaves(100, 2, augment=False)
    train_loader = DataLoader(train_set, args.batch, shuffle=True, generator=order)
    valid_loader = DataLoader(valid_set, 32)
    model = LeafNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    steps = args.epochs * -(-len(train_loader) // ACCUM)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: max(0.05, 1 - done / steps))

    start = 0
    if not first:
        saved = torch.load(args.file, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        start = saved["epoch"] + 1
        order.set_state(saved["order"])
        torch.set_rng_state(saved["torch"])
        np.random.set_state(saved["numpy"])
        random.setstate(saved["python"])
        print(f"goes on with epoch {start} at rate {scheduler.get_last_lr()[0]:.2e}")

    for epoch in range(start, until):
        train_loss = train_epoch(model, train_loader, optimizer, scheduler, criterion)
        valid_loss, accuracy = validate(model, valid_loader, criterion)
        print(f"epoch {epoch}: train {train_loss:.4f} valid {valid_loss:.4f} accuracy {accuracy:.3f}")
        saved = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "epoch": epoch,
            "order": order.get_state(),
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }
        torch.save(saved, args.file)


def main():
    args = parse()
    night(args, first=True, until=args.night)
    night(args, first=False, until=args.epochs)


if __name__ == "__main__":
    main()
