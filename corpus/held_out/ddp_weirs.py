"""Will the weir overflow within the hour? A recurrent network over logs of gauges, with torchrun and two gloo ranks.

torchrun --standalone --nproc-per-node 2 ddp_weirs.py
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

SEED = 31
EPOCHS, MICRO_BATCH, MICRO_BATCHES = 7, 8, 2
CREST = 0.8


def gauge_logs(count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Logs of 8 to 30 hours: level and rain of each hour, and whether the level is above the crest an hour later."""
    g = torch.Generator().manual_seed(seed)
    logs = []
    for _ in range(count):
        hours = int(torch.randint(8, 31, (), generator=g))
        rain = (torch.rand(hours + 1, generator=g) < 0.3) * torch.rand(hours + 1, generator=g) * 2
        level = torch.zeros(hours + 1)
        for hour in range(hours):
            level[hour + 1] = 0.75 * level[hour] + 0.6 * rain[hour] + 0.03 * torch.randn((), generator=g)
        logs.append((torch.stack([level[:-1], rain[:-1]], dim=1), (level[1:] > CREST).float()))
    return logs


class LogStream(IterableDataset):
    """Each rank reads its own share of the logs; the order is drawn anew in each epoch, the same on all ranks."""

    def __init__(self, logs: list[tuple[Tensor, Tensor]], rank: int, world: int, shuffle: bool) -> None:
        self.logs, self.rank, self.world, self.shuffle, self.epoch = logs, rank, world, shuffle, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.logs))
        if self.shuffle:
            order = torch.randperm(len(self.logs), generator=torch.Generator().manual_seed(SEED + self.epoch))
        for index in order[self.rank :: self.world]:
            yield self.logs[index]


def collate(logs: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    gauges, over = zip(*logs, strict=True)
    valid = pad_sequence([torch.ones(len(g)) for g in gauges], batch_first=True)
    gauges, over = pad_sequence(gauges, batch_first=True), pad_sequence(over, batch_first=True)
    return {"gauges": gauges, "over": over, "valid": valid}


class WeirNet(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.gru = nn.GRU(2, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)

    def forward(self, gauges: Tensor) -> Tensor:
        states, _ = self.gru(gauges)
        return self.head(self.drop(states)).squeeze(-1)


@torch.no_grad()
def evaluate(model: DistributedDataParallel, loader: DataLoader) -> tuple[float, float]:
    """Loss and accuracy over the valid hours of all ranks."""
    model.eval()
    totals = torch.zeros(3)
    for batch in loader:
        logits = model.module(batch["gauges"])
        losses = F.binary_cross_entropy_with_logits(logits, batch["over"], reduction="none")
        right = ((logits > 0) == (batch["over"] > 0.5)).float()
        valid = batch["valid"]
        totals += torch.stack([(losses * valid).sum(), (right * valid).sum(), valid.sum()])
    dist.all_reduce(totals)
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    model = DistributedDataParallel(WeirNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9)
    train_logs = LogStream(gauge_logs(128, seed=1), rank, world, shuffle=True)
    train_loader = DataLoader(train_logs, batch_size=MICRO_BATCH, collate_fn=collate)
    test_loader = DataLoader(LogStream(gauge_logs(41, seed=2), rank, world, shuffle=False), 8, collate_fn=collate)
    updates = EPOCHS * 128 // (MICRO_BATCH * MICRO_BATCHES * world)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: max(0.02, 1 - done / updates))
    torch.manual_seed(SEED + 1 + rank)
    best = float("inf")
    for epoch in range(EPOCHS):
        model.train()
        train_logs.epoch = epoch
        batches, running = iter(train_loader), 0.0
        while window := [batch for _, batch in zip(range(MICRO_BATCHES), batches, strict=False)]:
            hours = sum(batch["valid"].sum() for batch in window)
            dist.all_reduce(hours)
            optimizer.zero_grad()
            for number, batch in enumerate(window, 1):
                with contextlib.nullcontext() if number == len(window) else model.no_sync():
                    noisy = batch["gauges"] + 0.03 * torch.randn_like(batch["gauges"])
                    logits = model(noisy)
                    losses = F.binary_cross_entropy_with_logits(logits, batch["over"], reduction="none")
                    loss = (losses * batch["valid"]).sum() * world / hours
                    loss.backward()
                running += loss.item()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.15)
            optimizer.step()
            scheduler.step()
        test_loss, accuracy = evaluate(model, test_loader)
        if rank == 0:
            mean = running * EPOCHS / updates
            print(f"epoch {epoch} loss {mean:.3f} norm {norm:.2f} test {test_loss:.3f} accuracy {accuracy:.3f}")
        if test_loss < best:
            best = test_loss
            if rank == 0:
                torch.save({"model": model.module.state_dict(), "epoch": epoch, "loss": test_loss}, "weirs.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
