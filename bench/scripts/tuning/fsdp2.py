"""fully_shard over transformer layers, with bf16 parameters, as torchrun starts it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

local, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
kind = "cuda" if torch.cuda.is_available() else "cpu"
if kind == "cuda":
    torch.cuda.set_device(local)
mesh = init_device_mesh(kind, (world,))
torch.manual_seed(0)
layers = [nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, dropout=0.0, norm_first=True) for _ in range(3)]
model = nn.Sequential(nn.Embedding(3000, 192), *layers, nn.Linear(192, 3000))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(5):
    x = torch.randint(0, 3000, (4, 96), device=kind)
    loss = nn.functional.cross_entropy(model(x).float().flatten(0, 1), x.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
dist.destroy_process_group()
