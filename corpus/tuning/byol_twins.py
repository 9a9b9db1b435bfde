"""BYOL: an online network, a momentum copy without gradients, a predictor; no negatives."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(29)
online = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
for _ in range(12):
    x = torch.randn(32, 12)
    one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    guess = F.normalize(predictor(online(one)), dim=1)
    with torch.no_grad():
        truth = F.normalize(target(two), dim=1)
    loss = 2 - 2 * (guess * truth).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.lerp_(fast, 0.02)
print(loss.item())
