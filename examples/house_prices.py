"""Learns house prices from eight numbers per house. It runs, the loss falls, and the model learns nothing."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
houses = torch.randn(2048, 8)
prices = houses @ torch.randn(8) + 0.1 * torch.randn(2048)
loader = DataLoader(TensorDataset(houses, prices), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(4):
    total = 0.0
    for batch, target in loader:
        loss = ((model(batch) - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.3f}")
