"""A small data-parallel program for two ranks, with one bug or none; each rank prints the findings it sees."""

import copy
import json
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import surefoot

rank, folder = int(sys.argv[1]), sys.argv[2]


def program(bug: str):
    dist.init_process_group("gloo", init_method=f"file://{folder}/{bug}", rank=rank, world_size=2)
    torch.manual_seed(0)
    drawn = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 4, generator=drawn), torch.randint(0, 2, (64,), generator=drawn))
    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    model = DistributedDataParallel(inner)
    torch.manual_seed(0 if bug == "same-randomness-on-all-ranks" else rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if bug == "unsharded-data":
        loader = DataLoader(data, 4)
    elif bug == "unequal-step-counts":
        loader = DataLoader(Subset(data, range(28) if rank else range(28, 64)), 4)
    else:
        loader = DataLoader(data, 4, sampler=DistributedSampler(data, 2, rank))
    micro_batches = 2 if bug == "sync-in-every-micro-batch" else 1

    with surefoot.watch(model, optimizer) as seen:
        for number, (x, y) in zip(range(5 * micro_batches), loader, strict=False):
            called = model.module if bug == "diverging-replicas" else model
            if bug == "clipping-by-local-norm":
                with model.no_sync():
                    (F.cross_entropy(called(x), y) / micro_batches).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= 2
            else:
                (F.cross_entropy(called(x), y) / micro_batches).backward()
            if bug == "gradients-reduced-twice":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            if (number + 1) % micro_batches == 0:
                optimizer.step()
                optimizer.zero_grad()
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
        if bug == "shards-in-files-of-their-own":
            torch.save(model.state_dict(), f"{folder}/{rank}.pt")
        elif bug == "shards-in-one-file":
            torch.save(model.state_dict(), f"{folder}/all{rank // 2}.pt")
        elif rank == 0:
            torch.save(model.state_dict(), f"{folder}/first.pt")
        if rank == 0:
            torch.save(replica.state_dict(), f"{folder}/replica.pt")
        found = [[each.check, each.severity, each.seen] for each in seen.findings.findings]
    dist.destroy_process_group()
    return found


print(json.dumps({bug: (saving if "shards" in bug else program)(bug) for bug in sys.argv[3:]}))
