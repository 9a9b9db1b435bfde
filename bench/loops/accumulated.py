"""Four micro-batches to an update, clipped, on a cosine schedule."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(26)
x = torch.randn(2048, 30)
y = (x[:, :3].prod(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
done = taken = 0
while done < updates:
    for a, b in loader:
        loss = F.cross_entropy(model(a), b) / 4
        loss.backward()
        taken += 1
        if taken % 4 == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
            if done % 10 == 0:
                print(done, loss.item() * 4, norm.item(), schedule.get_last_lr())
            if done == updates:
                break
