"""A small classifier of made-up points."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)
x = torch.randn(1280, 20)
y = (x[:, :10].sum(1) + 0.3 * torch.randn(1280) > 0).long()
loader = DataLoader(TensorDataset(x[:1024], y[:1024]), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
done = 0
while done < updates:
    model.train()
    for batch, labels in loader:
        loss = F.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == updates:
            break
    print("loss", loss.item())
    model.eval()
    with torch.no_grad():
        scores = model(x[1024:])
    print("accuracy", (scores.argmax(1) == y[1024:]).float().mean().item(), scores.sum().item())
