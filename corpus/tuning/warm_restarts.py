"""Cosine with warm restarts, stepped in fractions of an epoch, and a snapshot at the end of each cycle."""

import copy

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def checkers(count, seed):
    g = torch.Generator().manual_seed(seed)
    point = 4 * torch.rand(count, 2, generator=g)
    return TensorDataset(point - 2, (point.floor().sum(dim=1) % 2).long())


def main():
    torch.manual_seed(315)
    loader = DataLoader(checkers(256, seed=1), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=2)
    snapshots = []
    for epoch in range(EPOCHS):
        for i, (point, colour) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(point), colour)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step(epoch + (i + 1) / len(loader))
        if epoch % 2:
            snapshots.append(copy.deepcopy(model).eval())
    point, colour = checkers(80, seed=2).tensors
    with torch.no_grad():
        mean = torch.stack([snapshot(point).softmax(dim=1) for snapshot in snapshots]).mean(dim=0)
    print("right", (mean.argmax(dim=1) == colour).float().mean().item())


main()
