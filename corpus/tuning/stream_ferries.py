"""Delays of ferries from a stream of logbooks: an IterableDataset over shards, two workers, minutes as waves."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, ROWS = 6, 40


def logbook(shard):
    """One harbour's rows: wind, wave, load, minute of the day; and the delay in minutes."""
    g = torch.Generator().manual_seed(1000 + shard)
    wind = 4 * torch.rand(ROWS, generator=g).sqrt() * 5
    wave = 0.1 * wind + 0.3 * torch.randn(ROWS, generator=g)
    load = torch.randint(20, 400, (ROWS,), generator=g).float()
    minute = torch.randint(0, 1440, (ROWS,), generator=g)
    rush = torch.sin(2 * math.pi * minute / 720)
    delay = 0.8 * wind + 4 * wave + 0.02 * load + 5 * rush + torch.randn(ROWS, generator=g)
    return torch.stack([wind, wave, load], dim=1), minute, delay


class Logbooks(IterableDataset):
    def __init__(self, shards, shuffle):
        self.shards, self.shuffle = list(shards), shuffle

    def mine(self):
        info = get_worker_info()
        if info is None:
            return self.shards
        return self.shards[info.id :: info.num_workers]

    def __iter__(self):
        shards = self.mine()
        if self.shuffle:
            shards = [shards[i] for i in torch.randperm(len(shards))]
        for shard in shards:
            numbers, minute, delay = logbook(shard)
            order = torch.randperm(ROWS) if self.shuffle else torch.arange(ROWS)
            for i in order.tolist():
                yield {"numbers": numbers[i], "minute": minute[i], "delay": delay[i]}


class Clock(nn.Module):
    """The minute of the day as sines and cosines of several periods."""

    def __init__(self, waves=4):
        super().__init__()
        self.register_buffer("speed", 2 * math.pi * torch.arange(1, waves + 1) / 1440)

    def forward(self, minute):
        angle = minute.float()[:, None] * self.speed
        return torch.cat([angle.sin(), angle.cos()], dim=1)


class DelayNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.register_buffer("centre", torch.tensor([13.0, 1.3, 210.0]))
        self.register_buffer("spread", torch.tensor([5.0, 0.6, 110.0]))
        self.clock = Clock()
        self.layers = nn.Sequential(
            nn.Linear(11, width), nn.ReLU(), nn.Dropout(0.05), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, numbers, minute):
        x = torch.cat([(numbers - self.centre) / self.spread, self.clock(minute)], dim=1)
        return self.layers(x).squeeze(-1)


MEAN, STD = 20.0, 6.5  # of delays, in minutes


def train_pass(model, loader, optimizer, scheduler):
    model.train()
    total, rows = 0.0, 0
    for batch in loader:
        guess = model(batch["numbers"], batch["minute"])
        wanted = (batch["delay"] - MEAN) / STD
        loss = nn.functional.mse_loss(guess, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(wanted)
        rows += len(wanted)
    return total / rows


def test_pass(model, loader):
    model.eval()
    total, rows = 0.0, 0
    with torch.no_grad():
        for batch in loader:
            guess = model(batch["numbers"], batch["minute"]) * STD + MEAN
            total += (guess - batch["delay"]).abs().sum().item()
            rows += len(guess)
    return total / rows


if __name__ == "__main__":
    torch.manual_seed(55)
    train_loader = DataLoader(Logbooks(range(SHARDS), shuffle=True), batch_size=16, num_workers=2)
    test_loader = DataLoader(Logbooks(range(SHARDS, SHARDS + 2), shuffle=False), batch_size=24)
    net = DelayNet()
    adam = torch.optim.NAdam(net.parameters(), lr=8e-3)
    passes = 5
    warm = torch.optim.lr_scheduler.LinearLR(adam, 0.1, total_iters=8)
    for n in range(passes):
        loss = train_pass(net, train_loader, adam, warm)
        print(f"pass {n}: loss {loss:.3f}, off by {test_pass(net, test_loader):.2f} minutes")
