"""Five folds: a new model and a new optimizer for each."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(8)
x = torch.randn(400, 6)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, -1.0]) + 0.1 * torch.randn(400)
folds = torch.randperm(400).chunk(5)
for number, held_out in enumerate(folds):
    rest = torch.cat([fold for other, fold in enumerate(folds) if other != number])
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(updates // 5):
        rows = rest[torch.randperm(len(rest))[:64]]
        loss = F.mse_loss(model(x[rows])[:, 0], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(number, loss.item(), F.mse_loss(model(x[held_out])[:, 0], y[held_out]).item())
