import os
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, SYNC = 12, 8, 3


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, series, hidden=None):
        out, hidden = self.rnn(series, hidden)
        return self.head(out[:, -1]).squeeze(1)


class Log:
    def __init__(self):
        self.lock = threading.Lock()
        self.lines = []

    def add(self, line):
        with self.lock:
            self.lines.append(line)

    def flush(self):
        with self.lock:
            print("\n".join(self.lines))
            self.lines.clear()


def waves(rank, count=50, length=16):
    generator = torch.Generator().manual_seed(rank)
    phases = 6 * torch.rand(count, 1, generator=generator)
    series = torch.sin(0.4 * torch.arange(length + 1) + phases)
    return TensorDataset(series[:, :-1].unsqueeze(2), series[:, -1])


def average(model, world):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= world


def swap(loss, rank):
    theirs = torch.zeros(1)
    if rank == 0:
        dist.send(loss, 1)
        dist.recv(theirs, 1)
    else:
        dist.recv(theirs, 0)
        dist.send(loss, 0)
    return theirs.item()


def main():
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    torch.manual_seed(0)
    model, log = Forecaster(), Log()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for number, (series, targets) in enumerate(DataLoader(waves(rank), batch_size=BATCH)):
        predicted = model(series)
        loss = (predicted - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.add(f"{number} {loss.item():.3f}")
        if distributed and number % SYNC == SYNC - 1:
            average(model, world)
            mine = loss.detach().view(1)
            log.add(f"theirs {swap(mine, rank):.3f}")
            parts = [torch.zeros(1) for _ in range(world)]
            dist.all_gather(parts, mine)
            log.add(f"all {torch.cat(parts).mean():.3f}")
    log.flush()
    if distributed:
        dist.destroy_process_group()


main()
