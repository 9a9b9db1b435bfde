"""Meter readings of buildings on two ranks: some readings are missing, sums are reduced. Start by torchrun."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

COLUMNS, METERS, PARTS, EPOCHS = 9, 3, 2, 3


class Buildings(Dataset):
    """Three meters for each building; `known` says which of them were read."""

    def __init__(self, count, seed, jitter=0.0):
        mixing = torch.randn(COLUMNS, METERS, generator=torch.Generator().manual_seed(1234)) / 3
        g = torch.Generator().manual_seed(seed)
        self.columns = torch.randn(count, COLUMNS, generator=g)
        self.read = torch.sin(self.columns @ mixing) + 0.1 * torch.randn(count, METERS, generator=g)
        share = torch.rand(count, 1, generator=g) ** 3
        self.known = torch.rand(count, METERS, generator=g) < 0.05 + 0.95 * share
        self.jitter = jitter

    def __len__(self):
        return len(self.columns)

    def __getitem__(self, i):
        columns = self.columns[i]
        if self.jitter:
            columns = columns + self.jitter * torch.randn(COLUMNS)
        return columns, self.read[i], self.known[i]


class MeterNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.enter = nn.Linear(COLUMNS, width)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, width)
        self.drop = nn.Dropout(0.05)
        self.meters = nn.Linear(width, METERS)

    def forward(self, columns):
        x = torch.relu(self.norm(self.enter(columns)))
        x = x + torch.relu(self.hidden(x))
        return self.meters(self.drop(x))


def reduced(value):
    """The sum of a number over the ranks."""
    value = torch.as_tensor(value, dtype=torch.float64)
    dist.all_reduce(value)
    return value.item()


def squares(guess, read, known):
    return ((guess - read) ** 2 * known).sum()


@torch.no_grad()
def test_error(model, test, rank, world):
    model.eval()
    total = count = 0.0
    for columns, read, known in DataLoader(torch.utils.data.Subset(test, range(rank, len(test), world)), batch_size=16):
        total += squares(model.module(columns), read, known).item()
        count += known.sum().item()
    return (reduced(total) / reduced(count)) ** 0.5


def train(rank, world):
    torch.manual_seed(300)
    model = DistributedDataParallel(MeterNet())
    torch.manual_seed(301 + rank)
    data, test = Buildings(384, seed=1, jitter=0.05), Buildings(70, seed=2)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=5)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    updates = EPOCHS * len(loader) // PARTS
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=updates, power=1.0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        parts = list(loader)
        for start in range(0, len(parts), PARTS):
            group = parts[start : start + PARTS]
            count = reduced(sum(known.sum() for _, _, known in group))
            for n, (columns, read, known) in enumerate(group):
                last = n + 1 == len(group)
                with contextlib.nullcontext() if last else model.no_sync():
                    loss = world * squares(model(columns), read, known) / count  # the wrapper averages over ranks
                    loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        error = test_error(model, test, rank, world)
        if rank == 0:
            print(f"epoch {epoch + 1}: off by {error:.3f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "meters.pt")


def main():
    dist.init_process_group("gloo")
    train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
