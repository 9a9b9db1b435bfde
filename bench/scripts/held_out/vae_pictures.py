"""Trains a convolutional variational autoencoder and writes pictures of its samples as an array.

Needs numpy.
"""

from __future__ import print_function  # noqa: UP010

import argparse
import os

import numpy as np
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE pictures example")
parser.add_argument("--batch-size", type=int, default=64, metavar="N")
parser.add_argument("--epochs", type=int, default=2, metavar="N")
parser.add_argument("--no-accel", action="store_true", help="disables accelerator")
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--log-interval", type=int, default=2, metavar="N")
args = parser.parse_args()

use_accel = not args.no_accel and torch.accelerator.is_available()
torch.manual_seed(args.seed)
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
print(f"Using device: {device}")

g = torch.Generator().manual_seed(args.seed)
blobs = torch.rand(384, 1, 7, 7, generator=g)
pictures = F.interpolate(blobs, size=(28, 28), mode="bilinear", align_corners=False)
kwargs = {"num_workers": 1, "pin_memory": True} if use_accel else {}
train_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(pictures[:320], torch.zeros(320)), batch_size=args.batch_size, shuffle=True, **kwargs
)
test_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(pictures[320:], torch.zeros(64)), batch_size=args.batch_size, **kwargs
)


class VAE(nn.Module):
    def __init__(self, latent=20):
        super().__init__()
        self.c1 = nn.Conv2d(1, 32, 4, 2, 1)
        self.c2 = nn.Conv2d(32, 64, 4, 2, 1)
        self.fc21 = nn.Linear(64 * 49, latent)
        self.fc22 = nn.Linear(64 * 49, latent)
        self.fc3 = nn.Linear(latent, 64 * 49)
        self.d1 = nn.ConvTranspose2d(64, 32, 4, 2, 1)
        self.d2 = nn.ConvTranspose2d(32, 1, 4, 2, 1)

    def encode(self, x):
        h = F.relu(self.c2(F.relu(self.c1(x)))).flatten(1)
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h = F.relu(self.fc3(z)).view(-1, 64, 7, 7)
        return torch.sigmoid(self.d2(F.relu(self.d1(h))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(
                f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(train_loader.dataset)} "
                f"({100.0 * batch_idx / len(train_loader):.0f}%)]\tLoss: {loss.item() / len(data):.6f}"
            )
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(train_loader.dataset):.4f}")


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 8)
                comparison = torch.cat([data[:n], recon_batch[:n]])
                np.save("results/reconstruction_" + str(epoch) + ".npy", comparison.cpu().numpy())
    print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")


if __name__ == "__main__":
    os.makedirs("results", exist_ok=True)
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            sample = torch.randn(16, 20).to(device)
            sample = model.decode(sample).cpu()
            np.save("results/sample_" + str(epoch) + ".npy", sample.view(16, 28, 28).numpy())
