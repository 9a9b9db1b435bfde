"""Regions from coordinates on two ranks: a wrapped MLP with dropout, jitter, accumulation. Start by torchrun."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PARTS, REGIONS = 2, 5


class Places(Dataset):
    def __init__(self, count, seed, jitter):
        centres = torch.randn(REGIONS, 6, generator=torch.Generator().manual_seed(99))
        g = torch.Generator().manual_seed(seed)
        self.region = torch.randint(REGIONS, (count,), generator=g)
        self.place = centres[self.region] + 0.4 * torch.randn(count, 6, generator=g)
        self.jitter = jitter

    def __len__(self):
        return len(self.region)

    def __getitem__(self, i):
        place = self.place[i]
        if self.jitter:
            place = place + 0.1 * torch.randn(6)
        return place, self.region[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, REGIONS)

    def forward(self, x):
        return self.head(self.body(x))


def train(rank, world):
    torch.manual_seed(180)
    model = DDP(Net())
    torch.manual_seed(180 + 1 + rank)
    data = Places(240, seed=1, jitter=True)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for i, (place, region) in enumerate(loader):
            update = (i + 1) % PARTS == 0
            wait = contextlib.nullcontext() if update else model.no_sync()
            with wait:
                logits = model(place)
                loss = nn.functional.cross_entropy(logits, region) / PARTS
                loss.backward()
            if update:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        report(model, rank, world, epoch)


@torch.no_grad()
def report(model, rank, world, epoch):
    model.eval()
    test = Places(60, seed=2, jitter=False)
    mine = range(rank, len(test), world)
    right = sum(int(model.module(test[i][0][None]).argmax() == test[i][1]) for i in mine)
    counts = torch.tensor([right, len(mine)])
    dist.all_reduce(counts)
    if rank == 0:
        print(f"epoch {epoch}: {counts[0].item()} of {counts[1].item()} right", flush=True)


def main():
    dist.init_process_group("gloo")
    try:
        train(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
