"""Segment cell nuclei and debris in small microscope tiles with a two-level U-Net (Dice + cross-entropy)."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

NAMES = ("background", "nucleus", "debris")
NUM_CLASSES = len(NAMES)


@dataclass
class Config:
    tiles: int = 360
    valid_tiles: int = 72
    size: int = 32
    width: int = 10
    batch_size: int = 24
    epochs: int = 7
    lr: float = 8e-3
    dice_weight: float = 0.6
    seed: int = 31


def paint_tiles(count, size, seed):
    """Round nuclei are brighter, square debris is darker; a tile also has a brightness gradient from left to right."""
    gen = torch.Generator().manual_seed(seed)
    rows, cols = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images = torch.zeros(count, 1, size, size)
    masks = torch.zeros(count, size, size, dtype=torch.long)
    for i in range(count):
        for _ in range(int(torch.randint(1, 4, (1,), generator=gen))):
            r, c = torch.randint(4, size - 4, (2,), generator=gen).tolist()
            radius = 2.5 + 3.0 * torch.rand(1, generator=gen).item()
            masks[i][(rows - r) ** 2 + (cols - c) ** 2 < radius**2] = 1
        r, c = torch.randint(3, size - 3, (2,), generator=gen).tolist()
        masks[i][((rows - r).abs() <= 2) & ((cols - c).abs() <= 2)] = 2
        shade = 0.4 * (cols.float() / size - 0.5)
        level = torch.tensor([0.0, 0.9, -0.9])[masks[i]]
        images[i, 0] = level + shade + 0.55 * torch.randn(size, size, generator=gen)
    return images, masks


class TileDataset(Dataset):
    def __init__(self, images, masks, augment):
        self.images, self.masks, self.augment = images, masks, augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, mask = self.images[index], self.masks[index]
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-1)
            mask = mask.flip(-1)
        if self.augment and torch.rand(()) < 0.5:
            image, mask = image.flip(-2), mask.flip(-2)
        return image, mask


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = block(1, width)
        self.downs = nn.ModuleList([block(width, 2 * width), block(2 * width, 4 * width)])
        self.ups = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for down in self.downs:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up in self.ups:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = up(torch.cat([x, skips.pop()], dim=1))
        return self.head(x)


def dice_loss(logits, masks, eps=1.0):
    probs = logits.softmax(dim=1)
    onehot = F.one_hot(masks, NUM_CLASSES).permute(0, 3, 1, 2).float()
    overlap = (probs * onehot).sum(dim=(2, 3))
    total = probs.sum(dim=(2, 3)) + onehot.sum(dim=(2, 3))
    dice = (2 * overlap + eps) / (total + eps)
    return 1 - dice.mean()


class Trainer:
    def __init__(self, cfg, train_set, valid_set):
        self.cfg = cfg
        self.model = TinyUNet(cfg.width)
        self.train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(valid_set, cfg.batch_size)
        share = torch.bincount(train_set.masks.flatten(), minlength=NUM_CLASSES) / train_set.masks.numel()
        weights = 1.0 / share.sqrt()
        self.weights = weights / weights.mean()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        steps = cfg.epochs * len(self.train_loader)
        self.schedule = torch.optim.lr_scheduler.PolynomialLR(self.optimizer, total_iters=steps, power=0.9)

    def train_epoch(self):
        self.model.train()
        running = 0.0
        for images, masks in self.train_loader:
            logits = self.model(images)
            ce = F.cross_entropy(logits, masks, weight=self.weights)
            loss = (1 - self.cfg.dice_weight) * ce + self.cfg.dice_weight * dice_loss(logits, masks)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            running += loss.item()
        return running / len(self.train_loader)

    @torch.no_grad()
    def iou(self):
        """Intersection over union per class, counted over all pixels of the validation tiles."""
        self.model.eval()
        confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES)
        for images, masks in self.valid_loader:
            guess = self.model(images).argmax(dim=1)
            pairs = masks.flatten() * NUM_CLASSES + guess.flatten()
            confusion += torch.bincount(pairs, minlength=NUM_CLASSES**2).view(NUM_CLASSES, NUM_CLASSES)
        hit = confusion.diag()
        union = confusion.sum(0) + confusion.sum(1) - hit
        return hit / union


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    images, masks = paint_tiles(cfg.tiles, cfg.size, seed=cfg.seed + 1)
    order = torch.randperm(cfg.tiles)
    valid_rows, train_rows = order[: cfg.valid_tiles], order[cfg.valid_tiles :]
    train_set = TileDataset(images[train_rows], masks[train_rows], augment=True)
    valid_set = TileDataset(images[valid_rows], masks[valid_rows], augment=False)
    trainer = Trainer(cfg, train_set, valid_set)
    for epoch in range(1, cfg.epochs + 1):
        loss = trainer.train_epoch()
        scores = trainer.iou()
        print(f"epoch {epoch}: train loss {loss:.4f} valid mIoU {scores.mean():.4f}")
    detail = " ".join(f"{name} {value:.3f}" for name, value in zip(NAMES, scores.tolist()))
    print(f"final: train loss {loss:.4f} valid mIoU {scores.mean():.4f} ({detail})")


if __name__ == "__main__":
    main()
