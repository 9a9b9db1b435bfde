"""Low-rank adapters by hand on a frozen network."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(25)


class Adapted(nn.Module):
    def __init__(self, plain, rank=4):
        super().__init__()
        self.plain = plain.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, plain.in_features) / plain.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(plain.out_features, rank))

    def forward(self, x):
        return self.plain(x) + 2.0 * F.linear(F.linear(x, self.down), self.up)


model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 5))
for place in (0, 2, 4):
    model[place] = Adapted(model[place])
trained = [each for each in model.parameters() if each.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
centres = torch.randn(5, 24)
for step in range(updates):
    labels = torch.randint(0, 5, (40,))
    loss = F.cross_entropy(model(centres[labels] + torch.randn(40, 24)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        with torch.no_grad():
            print(step, loss.item(), model(centres).diag().mean().item())
