"""A small data-parallel program for two ranks, with one bug or none; each rank prints the findings it sees."""

import contextlib
import copy
import json
import sys
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

import surefoot

rank, folder = int(sys.argv[1]), sys.argv[2]
UPDATES = 5
SUMS = {
    "sums divided again", "sums divided by micro-batches", "sums multiplied and divided", "sums of all ranks divided",
}  # fmt: skip
ACCUMULATING = {"synced every time", "synced too early", "synced never", *SUMS}


class Points(Dataset):
    """Points with noise that is drawn anew whenever they are read."""

    def __init__(self, count=160):
        drawn = torch.Generator().manual_seed(1)
        self.x = torch.randn(count, 4, generator=drawn)
        self.y = torch.randint(0, 2, (count,), generator=drawn)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place] + 0.1 * torch.randn(4), self.y[place]


class HalfOfALayer(nn.Module):
    """Each rank has half of the rows of a layer, and all ranks the same samples."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 2, bias=False)

    def forward(self, x):
        parts = [torch.zeros(len(x), 2) for _ in range(2)]
        part = self.outer(self.inner(x).relu())
        dist.all_gather(parts, part.detach())
        return part + sum(parts) - parts[rank]


def loader_of(form: str):
    data = Points()
    if form == "same order" or form == "halves of a model":
        return DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(3))
    if form == "unequal shares":
        return DataLoader(Subset(data, range(70) if rank else range(70, 160)), 4)
    if form == "stopped together":
        return DataLoader(Subset(data, range(20) if rank else range(20, 48)), 4)
    if form == "shares by hand":
        return DataLoader(Subset(data, range(rank, 160, 2)), 4, shuffle=True)
    seed = rank if form == "samplers of their own" else 0
    return DataLoader(data, 4, sampler=DistributedSampler(data, 2, rank, seed=seed))


def context(form: str, model: nn.Module, number: int):
    """Which micro-batches of two exchange gradients."""
    alone = form in ("clipped alone", "exchanged by hand", "exchanged in one piece", "synced never") or (
        form == "synced too early" and number % 2
    )
    alone |= form in SUMS and number % 2 == 0
    return model.no_sync() if alone else contextlib.nullcontext()


def summed(form: str, losses: torch.Tensor) -> torch.Tensor:
    """A sum by hand over one of two micro-batches, divided as its form has it."""
    world, total = dist.get_world_size(), torch.tensor(2.0 * len(losses))
    if form == "sums divided again":
        dist.all_reduce(total)
    if form == "sums divided by micro-batches":
        return losses.sum() / len(losses)
    return losses.sum() * world / total if form != "sums of all ranks divided" else losses.sum() / total


def sum_over_ranks(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def exchange(form: str, model: nn.Module) -> None:
    if form in ("clipped alone", "averaged now and then"):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    if form == "exchanged in one piece":
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        dist.all_reduce(flat)
        parts = (flat / dist.get_world_size()).split([parameter.numel() for parameter in model.parameters()])
        for parameter, part in zip(model.parameters(), parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))
    for parameter in model.parameters():
        if form in ("clipped alone", "exchanged by hand", "reduced again"):
            dist.all_reduce(parameter.grad)
        if form == "sums divided by micro-batches":
            parameter.grad /= 2
        elif form in ("clipped alone", "exchanged by hand", "divided again", *SUMS):
            parameter.grad /= dist.get_world_size()


def evaluate(form: str, model: nn.Module) -> None:
    test = Points(16).x[rank::2]
    model.eval()
    with torch.no_grad():
        positive = (model(test).argmax(-1) == 1).sum()
    if form != "scores kept to oneself":
        dist.all_reduce(positive)
    model.train()


def program(form: str):
    name = form.replace(" ", "_")
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=2)
    torch.manual_seed(rank if form == "halves of a model" else 0)
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    alone = {"halves of a model": HalfOfALayer(), "averaged now and then": inner}
    model = alone[form] if form in alone else DistributedDataParallel(inner)
    if form == "sums of all ranks divided":
        model.register_comm_hook(None, sum_over_ranks)
    torch.manual_seed(0 if form == "same randomness" else 1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader, micro_batches = loader_of(form), 2 if form in ACCUMULATING else 1

    with surefoot.watch(model, optimizer) as seen:
        if form == "stopped together":
            torch.manual_seed(0)
            print(inner(torch.zeros(2, 4)).shape)  # the same on all ranks, before they part
            torch.manual_seed(1 + rank)
        steps = UPDATES if form == "stopped together" else (UPDATES + 4) * micro_batches
        for number, (x, y) in enumerate(islice(loader, steps)):
            called = model.module if form == "called past the wrapper" else model
            with context(form, model, number):
                if form in SUMS:
                    summed(form, F.cross_entropy(called(x), y, reduction="none")).backward()
                else:
                    loss = F.cross_entropy(called(x), y)
                    if form == "loss divided":
                        loss = loss / dist.get_world_size()
                    (loss / micro_batches).backward()
            if (number + 1) % micro_batches == 0:
                exchange(form, model)
                if form == "rates of their own" and number == UPDATES:
                    optimizer.param_groups[0]["lr"] = 0.1 / (1 + rank)
                optimizer.step()
                optimizer.zero_grad()
            if form == "averaged now and then" and number % 3 == 2:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.data)
                    parameter.data /= 2
        if form != "halves of a model":
            evaluate(form, model)
    found = [[each.check, each.severity, each.seen] for each in seen.findings.findings]
    dist.destroy_process_group()
    return found


def saving(bug: str):
    """A sharded model: each rank writes its shards, or one does; and replicas, of which one rank writes the weights."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/{bug}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    replica = copy.deepcopy(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 0, 1])).backward()
            optimizer.step()
        if bug == "shards in files of their own":
            torch.save(model.state_dict(), f"{folder}/{rank}.pt")
        elif bug == "shards in one file":
            torch.save(model.state_dict(), f"{folder}/all{rank // 2}.pt")
        elif rank == 0:
            torch.save(model.state_dict(), f"{folder}/first.pt")
        if rank == 0:
            torch.save(replica.state_dict(), f"{folder}/replica.pt")
        found = [[each.check, each.severity, each.seen] for each in seen.findings.findings]
    dist.destroy_process_group()
    return found


print(json.dumps({form: (saving if "shards" in form else program)(form) for form in sys.argv[3:]}))
