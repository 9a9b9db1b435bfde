"""States of valves at every reading of ragged logs, on two ranks: loss by tokens of all ranks. Start by torchrun."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STATES, SENSORS, PARTS, EPOCHS, IGNORE = 3, 4, 2, 3, -100


class Logs(Dataset):
    def __init__(self, count, seed):
        centres = 1.5 * torch.randn(STATES, SENSORS, generator=torch.Generator().manual_seed(7))
        g = torch.Generator().manual_seed(seed)
        self.logs = []
        for _ in range(count):
            length = int(torch.randint(2, 12, (), generator=g))
            state = torch.randint(STATES, (length,), generator=g)
            self.logs.append((centres[state] + 0.6 * torch.randn(length, SENSORS, generator=g), state))

    def __len__(self):
        return len(self.logs)

    def __getitem__(self, index):
        return self.logs[index]


def collate(rows):
    readings = nn.utils.rnn.pad_sequence([r for r, _ in rows], batch_first=True)
    states = nn.utils.rnn.pad_sequence([s for _, s in rows], batch_first=True, padding_value=IGNORE)
    return readings, states


class ValveNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter = nn.Linear(SENSORS, width)
        self.drop = nn.Dropout(0.1)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.state = nn.Linear(width, STATES)

    def forward(self, readings):
        x = self.drop(torch.relu(self.enter(readings)))
        return self.state(self.gru(x)[0])


def groups_of(loader):
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == PARTS:
            yield group
            group = []
    if group:
        yield group


def evaluate(model, rank, world):
    model.eval()
    counts = torch.zeros(2)
    test = Logs(40, seed=2)
    with torch.no_grad():
        for index in range(rank, len(test), world):
            readings, states = test[index]
            counts[0] += (model.module(readings[None])[0].argmax(1) == states).sum()
            counts[1] += len(states)
    dist.all_reduce(counts)
    model.train()
    return counts[0].item() / counts[1].item()


def train(rank, world):
    torch.manual_seed(33)
    net = ValveNet()
    model = DistributedDataParallel(net)
    torch.manual_seed(500 + rank)
    data = Logs(192, seed=1)
    sampler = DistributedSampler(data, world, rank, seed=33)
    loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for group in groups_of(loader):
            tokens = torch.tensor(sum((s != IGNORE).sum().item() for _, s in group))
            dist.all_reduce(tokens)
            for part, (readings, states) in enumerate(group, start=1):
                with model.no_sync() if part < len(group) else contextlib.nullcontext():
                    scores = model(readings)
                    summed = F.cross_entropy(scores.flatten(0, 1), states.flatten(), reduction="sum")
                    loss = summed / tokens * world
                    loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        right = evaluate(model, rank, world)
        if rank == 0:
            print(f"epoch {epoch}: {right:.3f} right", flush=True)
    kept = os.environ.get("VALVES_OUT")
    if rank == 0 and kept:
        torch.save(net.state_dict(), kept)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        train(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
