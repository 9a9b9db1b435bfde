"""Which items of an order come back, on two ranks: ragged orders, accumulation, loss by items. Start by torchrun."""

import contextlib
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ARTICLES, PARTS, EPOCHS, BATCH = 30, 2, 4, 10
STAYS, RETURNS, NONE = 0, 1, -1


class Orders(Dataset):
    """An item comes back if its article fits badly to the first one of the order."""

    def __init__(self, count, seed):
        fit = torch.randn(ARTICLES, 3, generator=torch.Generator().manual_seed(70))
        g = torch.Generator().manual_seed(seed)
        self.orders = []
        for _ in range(count):
            items = torch.randint(1, ARTICLES, (int(torch.randint(2, 16, (), generator=g)),), generator=g)
            back = (fit[items] @ fit[items[0]] < 0.2).long()
            self.orders.append((items, back))

    def __len__(self):
        return len(self.orders)

    def __getitem__(self, index):
        return self.orders[index]


def collate(orders):
    longest = max(len(items) for items, _ in orders)
    items = torch.zeros(len(orders), longest, dtype=torch.long)
    back = torch.full((len(orders), longest), NONE)
    for row, (i, b) in enumerate(orders):
        items[row, : len(i)] = i
        back[row, : len(b)] = b
    return items, back


class ReturnsNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.article = nn.Embedding(ARTICLES, width)
        self.mix = nn.Linear(3 * width, 2 * width)
        self.norm = nn.LayerNorm(2 * width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, items):
        each = self.article(items)
        first = each[:, :1].expand_as(each)
        x = self.mix(torch.cat([each, first, each * first], dim=2))
        return self.out(self.drop(F.gelu(self.norm(x))))


def grouped(loader):
    batches = list(loader)
    for start in range(0, len(batches), PARTS):
        yield batches[start : start + PARTS]


def shares_right(ddp, rank, world):
    """Of items never seen, over all ranks."""
    ddp.eval()
    test = Orders(60, seed=2)
    mine = [test[i] for i in range(rank, len(test), world)]
    tally = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(mine), 8):
            items, back = collate(mine[start : start + 8])
            found = ddp.module(items).argmax(dim=2)
            tally[0] += ((found == back) & (back != NONE)).sum()
            tally[1] += (back != NONE).sum()
    dist.all_reduce(tally)
    ddp.train()
    return (tally[0] / tally[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(19)
    net = ReturnsNet()
    ddp = DDP(net)
    torch.manual_seed(1000 + rank)
    data = Orders(240, seed=1)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=19)
    loader = DataLoader(data, BATCH, sampler=sampler, collate_fn=collate)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3, momentum=0.9)
    steps = EPOCHS * math.ceil(len(loader) / PARTS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for group in grouped(loader):
            count = torch.tensor(sum(int((back != NONE).sum()) for _, back in group))
            dist.all_reduce(count)
            optimizer.zero_grad()
            for number, (items, back) in enumerate(group):
                last = number == len(group) - 1
                with contextlib.nullcontext() if last else ddp.no_sync():
                    logits = ddp(items)
                    summed = F.cross_entropy(logits.flatten(0, 1), back.flatten(), ignore_index=NONE, reduction="sum")
                    loss = world * summed / count
                    loss.backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 0.45)
            optimizer.step()
            schedule.step()
        right = shares_right(ddp, rank, world)
        if rank == 0:
            print(f"epoch {epoch}: {right:.3f} right, rate {schedule.get_last_lr()[0]:.1e}", flush=True)
    if rank == 0:
        torch.save(ddp.module.state_dict(), os.environ.get("ORDERS_OUT", "orders.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
