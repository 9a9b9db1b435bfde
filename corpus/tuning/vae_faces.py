"""Faces of smileys: a convolutional variational autoencoder with a warmed-up divergence, pixels as probabilities."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 12


def smileys(count, seed):
    g = torch.Generator().manual_seed(seed)
    faces = torch.zeros(count, 1, SIZE, SIZE)
    for face in faces[:, 0]:
        top, left, mouth = torch.randint(2, 4, (3,), generator=g).tolist()
        face[top : top + 2, left : left + 2] = 1
        face[top : top + 2, -left - 2 : -left] = 1
        face[-mouth - 1, 3:9] = 1
    shades = 0.2 * torch.rand(faces.shape, generator=g) + 0.8 * faces
    return (shades * 255).to(torch.uint8)


class VAE(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()
        )
        self.mean = nn.Linear(16 * 9, latent)
        self.logvar = nn.Linear(16 * 9, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, SIZE * SIZE))

    def encode(self, x):
        h = self.encoder(x).flatten(1)
        return self.mean(h), self.logvar(h)

    def sample(self, mean, logvar):
        return mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = self.sample(mean, logvar)
        logits = self.decoder(z).view_as(x)
        return logits, mean, logvar


def divergence(mean, logvar):
    return -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean()


class Run:
    def __init__(self):
        torch.manual_seed(50)
        self.train, self.valid = smileys(256, seed=1), smileys(48, seed=2)
        self.vae = VAE()
        self.optimizer = torch.optim.Adam(self.vae.parameters(), lr=4e-3)
        self.losses = []

    def loss(self, faces, beta):
        x = faces.float() / 255
        logits, mean, logvar = self.vae(x)
        pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = divergence(mean, logvar)
        return pixels + beta * kl

    def epoch(self, number):
        for i, rows in enumerate(torch.randperm(len(self.train)).split(16)):
            beta = min(1.0, (16 * number + i) / 30)
            loss = self.loss(self.train[rows], beta)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    def validate(self):
        with torch.no_grad():
            return self.loss(self.valid, 1.0).item()


run = Run()
for number in range(3):
    run.epoch(number)
    print(number, sum(run.losses[-16:]) / 16, run.validate())
torch.save({"vae": run.vae.state_dict()}, "vae.pt")
