"""Tidal currents at four buoys, an hour ahead: an LSTM over long series, truncated backpropagation, a resumed run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    buoys: int = 4
    hours: int = 840
    held_hours: int = 200
    lanes: int = 12
    window: int = 20
    hidden: int = 32
    dropout: float = 0.1
    lr: float = 8e-3
    epochs: int = 5
    stop_after: int = 3
    clip: float = 0.1
    seed: int = 11


def measure(config):
    """Speeds in cm/s, (lane, hour, buoy): two tides, a slow drift and the noise of the instruments."""
    hour = np.arange(config.hours)[None, :, None]
    phase = np.random.uniform(0, 2 * np.pi, (config.lanes, 1, 1))
    lag = 0.6 * np.arange(config.buoys)[None, None, :]
    strength = np.random.uniform(25, 45, (config.lanes, 1, 1))
    main = strength * np.sin(2 * np.pi * hour / 12.42 + phase - lag)
    second = 0.4 * strength * np.sin(2 * np.pi * hour / 24.0 + 2 * phase - 0.5 * lag)
    drift = np.cumsum(0.4 * np.random.randn(config.lanes, config.hours, config.buoys), axis=1)
    return (main + second + drift + 1.5 * np.random.randn(*drift.shape)).astype(np.float32)


class CurrentNet(nn.Module):
    def __init__(self, buoys, hidden, dropout):
        super().__init__()
        self.lstm = nn.LSTM(buoys, hidden, num_layers=2, batch_first=True, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        self.gain = nn.Parameter(torch.full((buoys,), 0.5))
        self.head = nn.Linear(hidden, buoys)

    def forward(self, x, state=None):
        h, state = self.lstm(x, state)
        return self.gain * x + self.head(self.drop(h)), state


class Trainer:
    """Owns the model and all that a run needs to go on."""

    def __init__(self, config, train, held):
        self.config, self.train_series, self.held_series = config, train, held
        self.mean, self.std = train.mean(dim=(0, 1)), train.std(dim=(0, 1))
        self.model = CurrentNet(config.buoys, config.hidden, config.dropout)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda epoch: 0.7**epoch)
        self.epoch, self.best = 0, float("inf")

    def windows(self, series):
        """Consecutive windows of all lanes: inputs, and the same an hour later."""
        series = (series - self.mean) / self.std
        for start in range(0, series.shape[1] - 1, self.config.window):
            stop = min(start + self.config.window, series.shape[1] - 1)
            yield series[:, start:stop], series[:, start + 1 : stop + 1]

    def train_epoch(self):
        self.model.train()
        state, total, count = None, 0.0, 0
        for x, y in self.windows(self.train_series):
            if state is not None:
                state = tuple(part.detach() for part in state)
            guess, state = self.model(x, state)
            slope = nn.functional.l1_loss(guess.diff(dim=1), y.diff(dim=1))
            loss = nn.functional.mse_loss(guess, y) + 0.3 * slope
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
            total += loss.item() * y.numel()
            count += y.numel()
        self.scheduler.step()
        self.epoch += 1
        return total / count

    @torch.no_grad()
    def evaluate(self):
        """Root of the mean squared error in cm/s, over the later hours, which training never sees."""
        self.model.eval()
        state, total, count = None, torch.zeros(()), 0
        for x, y in self.windows(self.held_series):
            guess, state = self.model(x, state)
            total += ((guess - y) * self.std).square().sum()
            count += y.numel()
        return (total / count).sqrt().item()

    def save(self, path):
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
        torch.save({**parts, "epoch": self.epoch, "best": self.best, "rng": torch.get_rng_state()}, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.best = state["epoch"], state["best"]
        torch.set_rng_state(state["rng"])

    def run(self, until):
        while self.epoch < until:
            loss = self.train_epoch()
            error = self.evaluate()
            self.best = min(self.best, error)
            print(f"epoch {self.epoch} loss {loss:.4f} held error {error:.2f} cm/s best {self.best:.2f}")


def main():
    config = Config()
    torch.manual_seed(config.seed)
    np.random.seed(config.seed)
    series = torch.from_numpy(measure(config))
    train, held = series[:, : -config.held_hours], series[:, -config.held_hours :]
    path = Path("currents.pt")

    first = Trainer(config, train, held)
    first.run(until=config.stop_after)  # the night's share
    first.save(path)

    second = Trainer(config, train, held)
    second.load(path)
    second.run(until=config.epochs)
    torch.save(second.model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
