"""Ice and rock in pictures of glaciers with a small U-Net; the job may be stopped and goes on from its checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    scenes: int = 72
    held_back: int = 22
    size: int = 24
    width: int = 8
    batch_size: int = 8
    epochs: int = 6
    stop_after: int = 3
    lr: float = 6e-3
    encoder_lr: float = 3e-3
    dropout: float = 0.1
    clip: float = 1.0
    folder: Path = Path("glaciers")
    checkpoint: Path = Path("last.pt")
    seed: int = 11


def write_scenes(cfg: Config) -> None:
    """Pictures in grey values of a camera, masks of 0 and 1: ice is brighter, and rock is rougher."""
    rng = np.random.default_rng(cfg.seed)
    y, x = np.mgrid[0 : cfg.size, 0 : cfg.size] / cfg.size
    pictures, masks = [], []
    for _ in range(cfg.scenes):
        cx, cy, bend = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(-1, 1)
        mask = (x - cx + bend * (y - 0.5) ** 2) ** 2 + (y - cy) ** 2 < rng.uniform(0.05, 0.15)
        grey = np.where(mask, 150 + 6 * rng.standard_normal(x.shape), 125 + 22 * rng.standard_normal(x.shape))
        pictures.append(grey + rng.uniform(-15, 15))
        masks.append(mask)
    cfg.folder.mkdir(exist_ok=True)
    np.save(cfg.folder / "pictures.npy", np.stack(pictures).astype(np.float32))
    np.save(cfg.folder / "masks.npy", np.stack(masks).astype(np.uint8))


class Scenes(Dataset):
    def __init__(self, folder: Path, part: slice, augment: bool) -> None:
        self.pictures = np.load(folder / "pictures.npy")[part]
        self.masks = np.load(folder / "masks.npy")[part]
        self.augment = augment

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        picture = torch.from_numpy(self.pictures[i].copy())
        mask = torch.from_numpy(self.masks[i] > 0).float()
        if self.augment:
            picture += 8 * torch.randn(())
            if torch.rand(()) < 0.5:
                picture, mask = picture.flip(1), mask.flip(1)
        return picture.unsqueeze(0), mask.unsqueeze(0)


class Swish(torch.autograd.Function):
    """x * sigmoid(x) that keeps only its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad * gate * (1 + x * (1 - gate))


class Block(nn.Module):
    def __init__(self, enter: int, leave: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(enter, leave, 3, padding=1, bias=False), nn.BatchNorm2d(leave)
        self.conv2, self.norm2 = nn.Conv2d(leave, leave, 3, padding=1, bias=False), nn.BatchNorm2d(leave)

    def forward(self, x):
        x = Swish.apply(self.norm1(self.conv1(x)))
        return Swish.apply(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))
        self.dropout = dropout
        self.down = nn.ModuleList([Block(1, width), Block(width, 2 * width)])
        self.bottom = Block(2 * width, 4 * width)
        self.gates = nn.ModuleList([nn.Conv2d(4 * width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)])
        self.up = nn.ModuleList([Block(6 * width, 2 * width), Block(3 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = (x - self.centre) / self.spread
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(F.dropout2d(x, self.dropout, self.training), 2)
        x = self.bottom(x)
        for gate, block in zip(self.gates, self.up, strict=True):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            skip = skips.pop()
            attention = torch.sigmoid(gate(x))
            x = block(torch.cat([attention * skip, x], dim=1))
        return self.head(x)


def segmentation_loss(logits, masks):
    """Cross-entropy of pixels and what is missing of the overlap of areas."""
    p = torch.sigmoid(logits)
    overlap = 2 * (p * masks).sum((1, 2, 3)) / ((p + masks).sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, masks) + (1 - overlap).mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    inter = union = 0
    for pictures, masks in loader:
        ice = model(pictures) > 0
        inter += (ice & (masks > 0)).sum().item()
        union += (ice | (masks > 0)).sum().item()
    return inter / max(1, union)


def build(cfg: Config):
    model = UNet(cfg.width, cfg.dropout)
    decoder = [*model.bottom.parameters(), *model.gates.parameters(), *model.up.parameters(), *model.head.parameters()]
    groups = [{"params": model.down.parameters(), "lr": cfg.encoder_lr}, {"params": decoder}]
    optimizer = torch.optim.AdamW(groups, lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.epochs)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    return model, optimizer, scheduler, average


def save(cfg: Config, epoch: int, model, optimizer, scheduler, average) -> None:
    state = {
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "average": average.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(state, cfg.checkpoint)


def train(cfg: Config, until: int) -> None:
    train_set = Scenes(cfg.folder, slice(cfg.held_back, None), augment=True)
    test_set = Scenes(cfg.folder, slice(cfg.held_back), augment=False)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=cfg.batch_size)
    model, optimizer, scheduler, average = build(cfg)
    start = 0
    if cfg.checkpoint.exists():
        state = torch.load(cfg.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        average.load_state_dict(state["average"])
        torch.set_rng_state(state["rng"])
        start = state["epoch"] + 1
    else:
        model.centre.fill_(train_set.pictures.mean().item())
        model.spread.fill_(train_set.pictures.std().item())
        average.module.load_state_dict(model.state_dict())
    for epoch in range(start, until):
        model.train()
        total = 0.0
        for pictures, masks in train_loader:
            loss = segmentation_loss(model(pictures), masks)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            optimizer.step()
            average.update_parameters(model)
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch + 1} loss {total / len(train_loader):.3f} iou {evaluate(model, test_loader):.3f}")
        save(cfg, epoch, model, optimizer, scheduler, average)


def main() -> None:
    cfg = Config()
    torch.manual_seed(cfg.seed)
    write_scenes(cfg)
    train(cfg, until=cfg.stop_after)  # the queue allows so many epochs in one job
    train(cfg, until=cfg.epochs)


if __name__ == "__main__":
    main()
