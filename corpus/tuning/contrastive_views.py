"""SimCLR: two views of each sample, targets are the places in the batch, samples that see one another in the loss."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(28)
encoder = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 12))
optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
encoder.train()
for _ in range(12):
    x = torch.randn(24, 16)
    a = F.normalize(encoder(x + 0.1 * torch.randn_like(x)), dim=1)
    b = F.normalize(encoder(x + 0.1 * torch.randn_like(x)), dim=1)
    similar = a @ b.T / 0.2
    places = torch.arange(len(x))
    loss = (F.cross_entropy(similar, places) + F.cross_entropy(similar.T, places)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
