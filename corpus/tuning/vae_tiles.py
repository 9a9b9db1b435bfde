"""A variational autoencoder of coloured tiles: convolutions, warm-up of the KL term, a checkpoint half-way, resumed."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    side: int = 16
    latent: int = 8
    channels: int = 16
    batch: int = 32
    epochs: int = 6
    warm_up: int = 30
    beta: float = 1.0
    lr: float = 3e-3
    checkpoint: str = "tiles.pt"


def draw_tiles(count, side, seed):
    """Stripes and checks in two colours, as bytes (count, 3, side, side)."""
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[:side, :side]
    tiles = np.empty((count, 3, side, side), dtype=np.uint8)
    for i in range(count):
        period, kind = rng.integers(2, 6), rng.integers(0, 3)
        place = (down, across, down + across)[kind]
        dark, light = rng.integers(0, 110, 3), rng.integers(140, 256, 3)
        inside = (place // period % 2).astype(bool)
        tiles[i] = np.where(inside, dark[:, None, None], light[:, None, None])
    return tiles


class TileSet(Dataset):
    def __init__(self, tiles, mirrored):
        self.tiles = tiles
        self.mirrored = mirrored

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        tile = torch.from_numpy(self.tiles[index]).float() / 255
        if self.mirrored and torch.rand(()) < 0.5:
            tile = tile.flip(-1)
        return tile


class TileVAE(nn.Module):
    def __init__(self, config):
        super().__init__()
        c, self.small = config.channels, config.side // 4
        self.encoder = nn.Sequential(
            nn.Conv2d(3, c, 4, stride=2, padding=1),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, 2 * c, 4, stride=2, padding=1),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
        )
        self.to_mean = nn.Linear(2 * c * self.small**2, config.latent)
        self.to_log_var = nn.Linear(2 * c * self.small**2, config.latent)
        self.from_latent = nn.Linear(config.latent, 2 * c * self.small**2)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(2 * c, c, 4, stride=2, padding=1),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.ConvTranspose2d(c, 3, 4, stride=2, padding=1),
        )

    def sample(self, mean, log_var):
        if not self.training:
            return mean
        return mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)

    def decode(self, z):
        x = F.relu(self.from_latent(z))
        return self.decoder(x.view(len(z), -1, self.small, self.small))

    def forward(self, tiles):
        features = self.encoder(tiles).flatten(1)
        mean, log_var = self.to_mean(features), self.to_log_var(features)
        return self.decode(self.sample(mean, log_var)), mean, log_var


def reconstruction(logits, tiles):
    """Per tile, summed over its pixels."""
    return F.binary_cross_entropy_with_logits(logits, tiles, reduction="none").flatten(1).sum(1)


def divergence(mean, log_var):
    return 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1)


class Trainer:
    def __init__(self, config, train_tiles, held_tiles):
        self.config = config
        self.train_loader = DataLoader(TileSet(train_tiles, True), config.batch, shuffle=True, drop_last=True)
        self.held_loader = DataLoader(TileSet(held_tiles, False), config.batch)
        self.model = TileVAE(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [4, 5], gamma=0.3)
        self.epoch = self.step = 0

    def fit(self, until):
        while self.epoch < until:
            self.model.train()
            for tiles in self.train_loader:
                loss = self.train_step(tiles)
            self.scheduler.step()
            self.epoch += 1
            print(f"epoch {self.epoch}: last {loss:.1f}, held out {self.evaluate():.1f}")

    def train_step(self, tiles):
        logits, mean, log_var = self.model(tiles)
        beta = self.config.beta * min(1.0, (self.step + 1) / self.config.warm_up)
        loss = (reconstruction(logits, tiles) + beta * divergence(mean, log_var)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total, count = 0.0, 0
        for tiles in self.held_loader:
            logits, mean, log_var = self.model(tiles)
            total += (reconstruction(logits, tiles) + divergence(mean, log_var)).sum().item()
            count += len(tiles)
        return total / count

    def save(self):
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
        torch.save({**parts, "epoch": self.epoch, "step": self.step}, self.config.checkpoint)

    def resume(self):
        kept = torch.load(self.config.checkpoint)
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(kept[name])
        self.epoch, self.step = kept["epoch"], kept["step"]


if __name__ == "__main__":
    torch.manual_seed(23)
    config = Config()
    train_tiles, held_tiles = draw_tiles(512, config.side, seed=1), draw_tiles(90, config.side, seed=2)
    first = Trainer(config, train_tiles, held_tiles)
    first.fit(config.epochs // 2)
    first.save()
    second = Trainer(config, train_tiles, held_tiles)
    second.resume()
    second.fit(config.epochs)
