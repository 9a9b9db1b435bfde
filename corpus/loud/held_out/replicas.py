import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class Signals(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.signals = torch.randn(size, 20, generator=generator)
        self.kinds = (self.signals.sum(1) > 0).long()

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        return self.signals[index], self.kinds[index]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(20, 16)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


def setup():
    if "RANK" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def evaluate(model, loader, world):
    model.eval()
    right = torch.zeros(1)
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum()
    model.train()
    parts = [right.clone() for _ in range(world)]
    if world > 1:
        dist.all_gather(parts, right)
    return torch.cat(parts).sum().item()


def main():
    rank, world = setup()
    torch.manual_seed(0)
    training, testing = Signals(64), Signals(32)
    sampler = DistributedSampler(training) if world > 1 else None
    loader = DataLoader(training, batch_size=8, sampler=sampler)
    tests = DataLoader(Subset(testing, range(rank, 32, world)), batch_size=4)
    model = Classifier()
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = evaluate(model, tests, world)
        if world > 1:
            dist.barrier()
        if rank == 0:
            print(epoch, loss.item(), right)
            torch.save(model.state_dict(), "model.pt")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
