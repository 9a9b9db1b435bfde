"""Pairs of views, told apart from the other pairs of the batch."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(19)
left = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
right = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 16))
scale = nn.Parameter(torch.tensor(2.0))
mix = torch.randn(16, 12)
optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters(), scale], lr=2e-3)


def pairs(size):
    x = torch.randn(size, 16)
    return x, x @ mix * 0.3 + 0.1 * torch.randn(size, 12)


def similarities(a, b):
    return scale.exp() * F.normalize(left(a), dim=1) @ F.normalize(right(b), dim=1).T


for step in range(updates):
    scores = similarities(*pairs(48))
    diagonal = torch.arange(len(scores))
    loss = (F.cross_entropy(scores, diagonal) + F.cross_entropy(scores.T, diagonal)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        with torch.no_grad():
            scores = similarities(*pairs(96))
        print(step, loss.item(), (scores.argmax(1) == torch.arange(96)).float().mean().item())
