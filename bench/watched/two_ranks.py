"""Two ranks started by torchrun, with DistributedDataParallel."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from watched.model import Model, Tokens
from watched.notes import Notes

dist.init_process_group("gloo")
torch.manual_seed(0)
data = Tokens()
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=0))
notes = Notes()
for batch, _ in zip(loader, range(int(sys.argv[2])), strict=False):
    optimizer.zero_grad()
    loss = model(**batch)["loss"]
    loss.backward()
    optimizer.step()
    notes(loss.item())
notes.keep(dist.get_rank())
dist.destroy_process_group()
