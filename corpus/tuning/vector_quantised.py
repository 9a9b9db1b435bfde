"""A VQ-VAE: straight-through gradients past the nearest code, stop-gradients in both directions."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(39)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 6), nn.Linear(6, 12)
        self.codes = nn.Embedding(16, 6)

    def forward(self, x):
        z = self.encode(x)
        nearest = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(nearest)
        straight = z + (q - z).detach()
        return self.decode(straight), F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


model = VQ()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(15):
    x = torch.randn(32, 12)
    rebuilt, quantisation = model(x)
    loss = F.mse_loss(rebuilt, x) + quantisation
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
