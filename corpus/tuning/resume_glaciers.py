"""Melt of glaciers from two years of weather. A job that is cut off by the queue after some epochs and goes on."""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--until", type=int, default=None, help="the queue ends the job before this epoch")
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=Path("glaciers.ckpt"))
    return parser.parse_args(arguments)


def weather(glaciers, seed):
    """Temperature, snow and sun of 24 months; melt in centimetres, most of it from warm months without snow."""
    g = torch.Generator().manual_seed(seed)
    month = torch.arange(24)
    season = torch.cos(2 * torch.pi * (month - 6) / 12)
    warmth = torch.randn(glaciers, 1, generator=g)
    temperature = -2 + 7 * season + 2 * warmth + torch.randn(glaciers, 24, generator=g)
    snow = (30 - 3 * temperature + 8 * torch.randn(glaciers, 24, generator=g)).clamp(min=0)
    sun = 150 + 60 * season + 20 * torch.randn(glaciers, 24, generator=g)
    melt = (temperature.clamp(min=0) * (0.5 + sun / 300)).sum(1) - 0.02 * snow.sum(1)
    melt = melt + torch.randn(glaciers, generator=g)
    return torch.stack([temperature, snow, sun], dim=-1), melt


class MeltNet(nn.Module):
    def __init__(self, columns=3, width=24):
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("std", torch.ones(columns))
        self.register_buffer("melt_mean", torch.zeros(()))
        self.register_buffer("melt_std", torch.ones(()))
        self.lstm = nn.LSTM(columns, width, batch_first=True)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)

    def measure(self, months, melt):
        self.mean.copy_(months.mean(dim=(0, 1)))
        self.std.copy_(months.std(dim=(0, 1)))
        self.melt_mean.copy_(melt.mean())
        self.melt_std.copy_(melt.std())

    def forward(self, months):
        x = (months - self.mean) / self.std
        states, _ = self.lstm(x)
        x = self.drop(self.norm(states.mean(dim=1)))
        return self.head(x).squeeze(-1)

    def loss(self, months, melt):
        return nn.functional.smooth_l1_loss(self(months), (melt - self.melt_mean) / self.melt_std)


def update_average(average, model, decay=0.97):
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)
        for slow, fast in zip(average.buffers(), model.buffers(), strict=True):
            slow.copy_(fast)


@torch.no_grad()
def error(model, loader):
    """Mean absolute error in centimetres."""
    model.eval()
    total, count = 0.0, 0
    for months, melt in loader:
        guess = model(months) * model.melt_std + model.melt_mean
        total += (guess - melt).abs().sum().item()
        count += len(melt)
    return total / count


def job(args):
    torch.manual_seed(args.seed)
    train_months, train_melt = weather(300, seed=10)
    train_loader = DataLoader(TensorDataset(train_months, train_melt), batch_size=args.batch_size, shuffle=True)
    valid_loader = DataLoader(TensorDataset(*weather(70, seed=11)), batch_size=32)
    model = MeltNet()
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(train_loader))
    start, best, best_weights = 0, float("inf"), None
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        start, best, best_weights = state["epoch"], state["best"], state["best_weights"]
    else:
        model.measure(train_months, train_melt)
        average.load_state_dict(model.state_dict())
    for epoch in range(start, args.epochs if args.until is None else args.until):
        model.train()
        for months, melt in train_loader:
            loss = model.loss(months, melt)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            update_average(average, model)
        now = error(average, valid_loader)
        if now < best:
            best, best_weights = now, copy.deepcopy(average.state_dict())
        print(f"epoch {epoch}: lr {scheduler.get_last_lr()[0]:.5f} error {now:.2f} cm, best {best:.2f} cm")
        state = {
            "model": model.state_dict(),
            "average": average.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "epoch": epoch + 1,
            "best": best,
            "best_weights": best_weights,
        }
        torch.save(state, args.checkpoint)
    average.load_state_dict(best_weights)
    return error(average, valid_loader)


if __name__ == "__main__":
    parse().checkpoint.unlink(missing_ok=True)
    job(parse(["--until", "3"]))
    print(f"best of all: {job(parse()):.2f} cm")
