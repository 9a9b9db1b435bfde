"""A variational autoencoder that names `cuda` without asking, with its settings in the environment's arguments."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--latent", type=int, default=32)
args = parser.parse_args()
torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, latent: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 512), nn.SiLU(), nn.Linear(512, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, 512), nn.SiLU(), nn.Linear(512, 784))

    def forward(self, x):
        mean, variance = self.encode(x).chunk(2, dim=-1)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * variance).exp()), mean, variance


model = VAE(args.latent).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
running = 0.0
for step in range(10):
    x = torch.rand(args.batch_size, 784, device="cuda")
    made, mean, variance = model(x)
    divergence = -0.5 * torch.sum(1 + variance - mean.pow(2) - variance.exp())
    loss = F.binary_cross_entropy_with_logits(made, x, reduction="sum") + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running += loss.item()
    print(step, running / (step + 1))
