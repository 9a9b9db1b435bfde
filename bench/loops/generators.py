"""Noise of one torch.Generator, orders of another, dropout of the global one."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(16)
noise, order = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
x = torch.randn(640, 10, generator=noise)
data = TensorDataset(x, x.pow(2).sum(1))
loader = DataLoader(data, batch_size=32, sampler=RandomSampler(data, generator=order))
model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
done = 0
while done < updates:
    for batch, aim in loader:
        disturbed = batch + 0.05 * torch.randn(batch.shape, generator=noise)
        loss = F.mse_loss(model(disturbed)[:, 0], aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == updates:
            break
    print(done, loss.item(), torch.rand((), generator=noise).item(), torch.rand(()).item())
