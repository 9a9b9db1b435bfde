"""DistributedDataParallel with a DistributedSampler, as torchrun starts it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, local, world = dist.get_rank(), int(os.environ["LOCAL_RANK"]), dist.get_world_size()
torch.cuda.set_device(local)
device = torch.device(f"cuda:{local}")
torch.manual_seed(0)
layers = nn.Linear(384, 1536), nn.BatchNorm1d(1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 100)
model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[local])
data = TensorDataset(torch.randn(1024, 384), torch.randint(0, 100, (1024,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=64, sampler=sampler, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(step, (mean / world).item(), flush=True)
    dist.barrier()
if rank == 0:
    torch.save(model.module.state_dict(), "ddp.pt")
dist.destroy_process_group()
