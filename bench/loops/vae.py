"""A variational autoencoder of made-up pictures."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(6)
pictures = torch.rand(1024, 1) * torch.sigmoid(torch.randn(1, 196) * 2 + torch.randn(1024, 196) * 0.2)
loader = DataLoader(TensorDataset(pictures), batch_size=64, shuffle=True)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(196, 96), nn.ReLU(), nn.Linear(96, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 196))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
done = 0
while done < updates:
    for (x,) in loader:
        made, mean, log_variance = model(x)
        rebuilt = F.binary_cross_entropy_with_logits(made, x, reduction="sum") / len(x)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum() / len(x)
        loss = rebuilt + divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == updates:
            break
    print(done, rebuilt.item(), divergence.item())
with torch.no_grad():
    print("sample", model.decoder(torch.randn(4, 8)).sigmoid().mean().item())
