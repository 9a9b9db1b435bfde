"""An exponential moving average of the weights, evaluated beside the model."""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(17)
x = torch.randn(600, 12)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).float()
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 1))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(updates):
    rows = torch.randint(0, 500, (50,))
    loss = F.binary_cross_entropy_with_logits(model(x[rows])[:, 0], y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 0.05)
        for kept, new in zip(average.buffers(), model.buffers(), strict=True):
            kept.copy_(new)
    if step % 20 == 19:
        model.eval(), average.eval()
        with torch.no_grad():
            right = [((each(x[500:])[:, 0] > 0).float() == y[500:]).float().mean().item() for each in (model, average)]
        print(step, loss.item(), right)
        model.train()
