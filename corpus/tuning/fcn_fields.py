"""Fields in tiles from the air, pixel by pixel: a small U-shaped net, clouds left out of the loss, an own optimizer."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, PARTS, EPOCHS = 24, 2, 4


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            fast, slow = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"]
                update = torch.lerp(p.grad, momentum, fast).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])
                momentum.lerp_(p.grad, 1 - slow)


class Tiles(Dataset):
    """Tiles with three bands, the field in them, and what can be seen of it (0 under clouds)."""

    def __init__(self, count, seed, flipped):
        rng = np.random.default_rng(seed)
        self.flipped = flipped
        self.tiles, self.fields, self.seen = [], [], []
        down, across = np.mgrid[0:SIDE, 0:SIDE]
        for _ in range(count):
            top, left = rng.integers(1, 12, 2)
            height, width = rng.integers(7, 12, 2)
            field = (down >= top) & (down < top + height) & (across >= left) & (across < left + width)
            tile = rng.normal(0, 0.7, (3, SIDE, SIDE))
            tile[1] += 1.2 * field
            tile[2] -= 0.8 * field
            cloud = down < rng.integers(0, 20)
            tile[:, cloud] = 1.5 + rng.normal(0, 0.2, (3, cloud.sum()))
            self.tiles.append(tile.astype(np.float32))
            self.fields.append(field.astype(np.float32))
            self.seen.append((~cloud).astype(np.float32))

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        tile = torch.from_numpy(self.tiles[index]).clone()
        field, seen = torch.from_numpy(self.fields[index]), torch.from_numpy(self.seen[index])
        if self.flipped:
            tile += 0.1 * torch.randn(3, 1, 1)
            if torch.rand(()) < 0.5:
                tile, field, seen = tile.flip(-1), field.flip(-1), seen.flip(-1)
        return tile, field, seen


def conv(cin, cout, stride=1):
    layers = [nn.Conv2d(cin, cout, 3, stride=stride, padding=1), nn.GroupNorm(4, cout), nn.ReLU()]
    return nn.Sequential(*layers)


class FieldNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.enter = conv(3, width)
        self.down1 = conv(width, 2 * width, stride=2)
        self.down2 = conv(2 * width, 2 * width, stride=2)
        self.up1 = conv(4 * width, width)
        self.up2 = conv(2 * width, width)
        self.field = nn.Conv2d(width, 1, 1)
        self.share = nn.Linear(2 * width, 1)

    def forward(self, tiles):
        fine = self.enter(tiles)
        middle = self.down1(fine)
        coarse = self.down2(middle)
        x = self.up1(torch.cat([F.interpolate(coarse, scale_factor=2), middle], dim=1))
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2), fine], dim=1))
        return self.field(x).squeeze(1), self.share(coarse.mean(dim=(2, 3))).squeeze(1)


def loss_of(logits, share, field, seen):
    """Sums over what is seen: of the pixels, of the overlap, and of the share of the tile that is field."""
    pixels = (F.binary_cross_entropy_with_logits(logits, field, reduction="none") * seen).sum()
    chance = torch.sigmoid(logits) * seen
    overlap = 1 - (2 * (chance * field).sum() + 1) / (chance.sum() + (field * seen).sum() + 1)
    true_share = (field * seen).sum(dim=(1, 2)) / seen.sum(dim=(1, 2)).clamp_min(1)
    shares = F.mse_loss(torch.sigmoid(share), true_share)
    return pixels, overlap, shares


def intersection_over_union(model, loader):
    model.eval()
    both = either = 0.0
    with torch.no_grad():
        for tiles, field, seen in loader:
            logits, _ = model(tiles)
            found = (torch.sigmoid(logits) > 0.5).float() * seen
            field = field * seen
            both += (found * field).sum().item()
            either += ((found + field) > 0).sum().item()
    return both / max(either, 1.0)


def train():
    torch.manual_seed(77)
    train_loader = DataLoader(Tiles(96, seed=1, flipped=True), batch_size=4, shuffle=True)
    test_loader = DataLoader(Tiles(22, seed=2, flipped=False), batch_size=8)
    model = FieldNet()
    optimizer = Lion(model.parameters(), lr=1.5e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    for epoch in range(EPOCHS):
        model.train()
        stream = iter(train_loader)
        losses = []
        for _ in range(len(train_loader) // PARTS):
            group = [next(stream) for _ in range(PARTS)]
            visible = max(1.0, sum(seen.sum().item() for _, _, seen in group))
            step_loss = 0.0
            for tiles, field, seen in group:
                logits, share = model(tiles)
                pixels, overlap, shares = loss_of(logits, share, field, seen)
                loss = pixels / visible + (0.5 * overlap + shares) / PARTS
                loss.backward()
                step_loss += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(step_loss)
        schedule.step()
        iou = intersection_over_union(model, test_loader)
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} IoU {iou:.3f}")
    torch.save(model.state_dict(), "fields.pt")


if __name__ == "__main__":
    train()
