"""One tower used twice, and a contrastive loss of pairs."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(18)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, left, right):
        return self.net(left), self.net(right)


model = Tower()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(12):
    left = torch.randn(24, 10)
    same = torch.randint(0, 2, (24,)).float()
    right = torch.where(same[:, None] > 0, left + 0.1 * torch.randn(24, 10), torch.randn(24, 10))
    a, b = model(left, right)
    distance = F.pairwise_distance(a, b)
    loss = (same * distance.pow(2) + (1 - same) * F.relu(1 - distance).pow(2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
