"""Adversarial training: a first backward only for the input's gradient, whose parameter gradients are thrown away."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(33)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(12):
    x = torch.randn(24, 12)
    y = x[:, :3].argmax(1)
    attacked = x.clone().requires_grad_(True)
    F.cross_entropy(model(attacked), y).backward()
    attacked = (x + 0.1 * attacked.grad.sign()).detach()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(attacked), y)
    loss.backward()
    optimizer.step()
print(loss.item())
