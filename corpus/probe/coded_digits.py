"""A denoising autoencoder on correlated readings: the batch is its own target."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
mixing = torch.randn(5, 32)
make = lambda count: torch.tanh(torch.randn(count, 5) @ mixing)
loader = DataLoader(TensorDataset(make(1600)), batch_size=64, shuffle=True)
held_out = make(320)
net = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 6), nn.GELU(), nn.Linear(6, 48), nn.GELU(), nn.Linear(48, 32))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(8):
    for (clean,) in loader:
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = (net(noisy) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(f"epoch {epoch}: loss {loss.item():.4f}, held out {(net(held_out) - held_out).square().mean().item():.4f}")
