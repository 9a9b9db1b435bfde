import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import surefoot

with surefoot.fake_world(ranks=256):  # 256 simulated ranks, no memory
    model = nn.Sequential(nn.Linear(8192, 32768), nn.GELU(), nn.Linear(32768, 8192))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(1024, 8192)).square().mean().backward()
        optimizer.step()

print(sum(parameter.numel() for parameter in model.parameters()), "parameters, none of them in memory")
print(model[0].weight.to_local().shape, "is what one of 256 ranks holds of the first matrix")
