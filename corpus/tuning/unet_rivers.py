"""Rivers in satellite tiles: a U-Net of three levels, BCE and soft Dice, tiles with clouds that bear no loss."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def tile(generator, size=20):
    """Three bands of 12-bit counts, the river, and what is not under a cloud."""
    across = torch.arange(size).float()
    phase, bend = torch.rand(2, generator=generator).tolist()
    course = size / 2 + 5 * torch.sin(across * (0.15 + 0.2 * bend) + 6.28 * phase)
    river = ((across[:, None] - course).abs() < 2.2).float()
    bands = 1800 + 300 * torch.randn(3, size, size, generator=generator)
    bands[2] -= 900 * river
    bands[0] += 400 * river
    clear = torch.ones(size, size)
    top, left = torch.randint(0, size - 6, (2,), generator=generator).tolist()
    clear[top : top + 6, left : left + 6] = 0
    bands = torch.where(clear.bool(), bands, torch.tensor(3900.0))
    return bands.clamp(0, 4095), river[None], clear[None]


class Tiles(Dataset):
    MEAN, STD = 1900.0, 600.0

    def __init__(self, count, seed, turn):
        generator = torch.Generator().manual_seed(seed)
        self.tiles = [tile(generator) for _ in range(count)]
        self.turn = turn

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        bands, river, clear = self.tiles[index]
        bands = (bands - self.MEAN) / self.STD
        if self.turn:
            quarter = int(torch.randint(4, ()))
            bands, river, clear = (t.rot90(quarter, (1, 2)) for t in (bands, river, clear))
        return bands, river, clear


def double(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 24)):
        super().__init__()
        self.down = nn.ModuleList([double(a, b) for a, b in zip((3, *widths[:-1]), widths, strict=True)])
        back = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.lift = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, 2) for a, b in back])
        self.up = nn.ModuleList([double(2 * b, b) for _, b in back])
        self.river = nn.Conv2d(widths[0], 1, 1)
        nn.init.constant_(self.river.bias, math.log(0.2 / 0.8))

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(x)
            if level < len(self.down) - 1:
                skips.append(x)
                x = F.max_pool2d(x, 2)
        for lift, block, skip in zip(self.lift, self.up, reversed(skips), strict=True):
            x = block(torch.cat([lift(x), skip], dim=1))
        return self.river(x)


def pixel_loss(logits, river, clear):
    each = F.binary_cross_entropy_with_logits(logits, river, reduction="none")
    return (each * clear).sum() / clear.sum()


def dice_loss(logits, river, clear):
    soft = logits.sigmoid() * clear
    river = river * clear
    both = (soft * river).sum(dim=(1, 2, 3))
    dice = (2 * both + 1) / (soft.sum(dim=(1, 2, 3)) + river.sum(dim=(1, 2, 3)) + 1)
    return 1 - dice.mean()


class Trainer:
    def __init__(self, model, train_set, test_set, epochs=4):
        self.model, self.epochs = model, epochs
        self.train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        self.test_loader = DataLoader(test_set, batch_size=16)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        steps = epochs * len(self.train_loader)
        self.schedule = torch.optim.lr_scheduler.PolynomialLR(self.optimizer, total_iters=steps, power=0.9)

    def step(self, bands, river, clear):
        logits = self.model(bands)
        loss = pixel_loss(logits, river, clear) + 0.5 * dice_loss(logits, river, clear)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        both = either = 0.0
        for bands, river, clear in self.test_loader:
            found = (self.model(bands) > 0) & clear.bool()
            true = (river > 0.5) & clear.bool()
            both += (found & true).sum().item()
            either += (found | true).sum().item()
        return both / max(either, 1)

    def fit(self):
        for epoch in range(self.epochs):
            self.model.train()
            losses = [self.step(*batch) for batch in self.train_loader]
            print(f"epoch {epoch}: {sum(losses) / len(losses):.3f}, overlap {self.test():.3f}")


if __name__ == "__main__":
    torch.manual_seed(9)
    Trainer(UNet(), Tiles(96, seed=3, turn=True), Tiles(40, seed=4, turn=False)).fit()
