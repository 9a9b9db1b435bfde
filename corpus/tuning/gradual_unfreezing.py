"""Unfreezes a body after the first epoch and tells the optimizer about it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(41)
x = torch.randn(128, 10)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
body, head = nn.Sequential(nn.Linear(10, 32), nn.ReLU()), nn.Linear(32, 3)
model = nn.Sequential(body, head)
body.requires_grad_(False)
optimizer = torch.optim.Adam(head.parameters(), lr=5e-3)
for epoch in range(3):
    if epoch == 1:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": list(body.parameters()), "lr": 1e-3})
    for features, labels in loader:
        loss = F.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
