"""Yield of each tree of an orchard, two ranks under torchrun: orchards of unlike size, two micro-batches per step."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS, BATCH, MICRO, LR = 5, 6, 2, 8e-3


class Orchards(Dataset):
    """Age, girth, sun, water, slope and blossom of each tree; trees of one orchard share their soil."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.orchards = []
        for _ in range(count):
            trees = int(torch.randint(3, 24, (1,), generator=g))
            soil = torch.randn(1, generator=g)
            x = torch.randn(trees, 6, generator=g)
            x[:, 4] = soil
            crop = x[:, 0] - 0.5 * x[:, 0] ** 2 + x[:, 3] * torch.sigmoid(2 * soil) + 0.6 * x[:, 5]
            self.orchards.append((x, crop + 0.1 * torch.randn(trees, generator=g)))

    def __len__(self) -> int:
        return len(self.orchards)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.orchards[index]


def pad(orchards):
    """Trees, crops and which of them are there."""
    x, crop = zip(*orchards, strict=True)
    real = [torch.ones(len(one)) for one in crop]
    return tuple(nn.utils.rnn.pad_sequence(part, batch_first=True) for part in (x, crop, real))


class TreeNet(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, width), nn.GELU(), nn.Dropout(0.05), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def squared(model, batch):
    x, crop, real = batch
    return ((model(x) - crop) ** 2 * real).sum()


@torch.no_grad()
def evaluate(model, orchards, rank, world):
    """Mean squared error per tree; every rank looks at its share."""
    model.eval()
    share = [orchards[index] for index in range(rank, len(orchards), world)]
    sums = torch.zeros(2)
    for start in range(0, len(share), 16):
        batch = pad(share[start : start + 16])
        sums += torch.stack([squared(model, batch), batch[2].sum()])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    model = DistributedDataParallel(TreeNet())
    torch.manual_seed(1000 + rank)
    train, val = Orchards(168, seed=1), Orchards(50, seed=2)
    sampler = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, seed=9)
    loader = DataLoader(train, batch_size=BATCH, sampler=sampler, collate_fn=pad)
    optimizer = torch.optim.SGD(model.parameters(), lr=10 * LR, momentum=0.9)
    steps = EPOCHS * len(loader) // MICRO
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        batches = list(loader)
        for first in range(0, len(batches), MICRO):
            group = batches[first : first + MICRO]
            trees = torch.stack([batch[2].sum() for batch in group]).sum()
            dist.all_reduce(trees)
            optimizer.zero_grad()
            for number, batch in enumerate(group):
                last = number == len(group) - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    loss = squared(model, batch) * world / trees
                    loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        error = evaluate(model.module, val, rank, world)
        if rank == 0:
            print(f"epoch {epoch + 1} norm {norm:.3f} error per tree {error:.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "orchards.pt")
    dist.barrier()
    final = TreeNet()
    final.load_state_dict(torch.load("orchards.pt"))
    error = evaluate(final, val, rank, world)
    if rank == 0:
        print(f"saved model: error per tree {error:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
