"""VQ-VAE for short melodies of a bird: each stretch of a curve becomes one of 32 codes."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def songs(n, seed, length=48):
    rng = np.random.default_rng(seed)
    pieces = rng.integers(0, 6, (n, length // 8))
    t = np.linspace(0, 1, 8, endpoint=False)
    shapes = np.stack([t, 1 - t, np.sin(2 * np.pi * t), -np.sin(2 * np.pi * t), 0 * t, np.abs(2 * t - 1)])
    out = shapes[pieces].reshape(n, length) + rng.normal(0, 0.08, (n, length))
    return torch.tensor((out - 0.35) / 0.5, dtype=torch.float32).unsqueeze(1)


class Codebook(nn.Module):
    def __init__(self, codes=32, dim=8, commitment=0.25):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, dim))
        self.commitment = commitment

    def forward(self, z):
        """z: (batch, dim, places). The nearest codes, the loss of the codebook, and which codes were taken."""
        flat = z.permute(0, 2, 1).reshape(-1, z.shape[1])
        with torch.no_grad():
            index = torch.cdist(flat, self.codes).argmin(dim=1)
        nearest = self.codes[index].view(z.shape[0], z.shape[2], -1).permute(0, 2, 1)
        loss = F.mse_loss(nearest, z.detach()) + self.commitment * F.mse_loss(z, nearest.detach())
        return z + (nearest - z).detach(), loss, index  # gradients pass the codes by, straight to the encoder


class VQVAE(nn.Module):
    def __init__(self, width=24, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, width, 4, stride=4),
            nn.ReLU(),
            nn.Conv1d(width, width, 2, stride=2),
            nn.ReLU(),
            nn.Conv1d(width, dim, 1),
            nn.GroupNorm(1, dim),
        )
        self.book = Codebook(dim=dim)
        self.decoder = nn.Sequential(
            nn.Conv1d(dim, width, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(width, width, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose1d(width, 1, 4, stride=4),
        )

    def forward(self, x):
        z, book_loss, index = self.book(self.encoder(x))
        return self.decoder(z), book_loss, index


class Run:
    def __init__(self, seed=6, batch=32):
        torch.manual_seed(seed)
        self.model = VQVAE()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=4e-3)
        self.train_songs, self.test_songs, self.batch = songs(384, 1), songs(96, 2), batch

    def epoch(self):
        self.model.train()
        for rows in torch.randperm(len(self.train_songs)).split(self.batch):
            x = self.train_songs[rows]
            again, book_loss, index = self.model(x)
            loss = F.mse_loss(again, x) + book_loss
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        again, _, index = self.model(self.test_songs)
        return F.mse_loss(again, self.test_songs).item(), len(index.unique())

    def __call__(self, epochs):
        for number in range(epochs):
            loss = self.epoch()
            error, used = self.test()
            print(f"{number}: last loss {loss:.3f}, test error {error:.3f}, codes in use {used}")


if __name__ == "__main__":
    Run()(epochs=8)
