"""Recomputed blocks with dropout: the second forward must draw what the first one drew."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(13)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 48)) for _ in range(3)
        )
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
centres = torch.randn(4, 48)
for step in range(updates):
    labels = torch.randint(0, 4, (32,))
    loss = F.cross_entropy(model(centres[labels] + torch.randn(32, 48)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            print(step, loss.item(), model(centres).sum().item())
        model.train()
