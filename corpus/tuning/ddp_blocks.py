"""Two ranks train a residual classifier; gradients are accumulated under no_sync, rank 0 writes. Start by torchrun."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 2


def blobs(count, seed):
    centers = 2 * torch.randn(4, 10, generator=torch.Generator().manual_seed(1000))
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=g)
    return TensorDataset(centers[label] + torch.randn(count, 10, generator=g), label)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(x)


def network():
    return nn.Sequential(nn.Linear(10, 24), Residual(24), Residual(24), nn.LayerNorm(24), nn.Linear(24, 4))


def accuracy(ddp, data, rank, world):
    """Each rank looks at its share; counts are added up."""
    ddp.eval()
    share = torch.arange(rank, len(data), world)
    x, y = data[share]
    with torch.no_grad():
        counts = torch.tensor([(ddp.module(x).argmax(1) == y).sum().item(), len(y)], dtype=torch.float64)
    dist.all_reduce(counts)
    ddp.train()
    return (counts[0] / counts[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(500)
    ddp = DistributedDataParallel(network())
    torch.manual_seed(900 + rank)
    data, test = blobs(256, 1), blobs(51, 2)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        ddp.train()
        for i, (x, y) in enumerate(loader, start=1):
            last = i % ACCUM == 0
            with contextlib.nullcontext() if last else ddp.no_sync():
                loss = criterion(ddp(x), y) / ACCUM
                loss.backward()
            if last:
                nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        right = accuracy(ddp, test, rank, world)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item() * ACCUM:.3f}, right {right:.3f}", flush=True)
            state = {"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, "blobs.tmp")
            os.replace("blobs.tmp", "blobs.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
