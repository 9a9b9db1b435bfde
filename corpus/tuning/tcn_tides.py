"""The tide of the next hour: causal convolutions with dilation, windows cut by hand, trained in two sessions."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


@dataclass
class Config:
    hours: int = 1600
    window: int = 48
    stride: int = 6
    channels: int = 20
    dilations: tuple = (1, 2, 4, 8)
    dropout: float = 0.05
    batch: int = 32
    epochs: int = 6
    lr: float = 4e-3
    warmup: int = 10
    checkpoint: str = "tides.pt"
    seed: int = 41


def gauge(cfg: Config) -> np.ndarray:
    """Metres above chart datum, hour by hour: four constituents, weather and noise."""
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)
    level = np.full(cfg.hours, 3.0)
    for height, period in ((1.5, 12.42), (0.5, 12.0), (0.3, 23.93), (0.2, 25.82)):
        level += height * np.cos(2 * np.pi * t / period + rng.uniform(0, 6.28))
    surge = np.zeros(cfg.hours)
    for i in range(1, cfg.hours):
        surge[i] = 0.9 * surge[i - 1] + rng.normal(0, 0.08)
    return (level + surge + rng.normal(0, 0.03, cfg.hours)).astype(np.float32)


def cut(level: np.ndarray, first: int, last: int, cfg: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Windows within [first, last): inputs, the level one hour later, the hour at which each window begins."""
    starts = np.arange(first, last - cfg.window, cfg.stride)
    inputs = np.stack([level[s : s + cfg.window] for s in starts])
    later = np.stack([level[s + 1 : s + cfg.window + 1] for s in starts])
    return torch.from_numpy(inputs), torch.from_numpy(later), torch.from_numpy(starts)


class RunningScale(nn.Module):
    """Mean and width of all levels seen in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0))
        self.register_buffer("mean", torch.tensor(0.0))
        self.register_buffer("square", torch.tensor(1.0))

    def forward(self, x):
        if self.training:
            self.count += 1
            self.mean += (x.mean() - self.mean) / self.count
            self.square += (x.square().mean() - self.square) / self.count
        return (x - self.mean) / (self.square - self.mean.square()).clamp_min(1e-4).sqrt()


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation, dropout):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(dropout)
        self.gain = nn.Parameter(torch.full((channels, 1), 0.5))

    def forward(self, x):
        y = torch.tanh(self.conv(nn.functional.pad(x, (self.pad, 0))))
        return x + self.gain * self.drop(self.mix(y))


class TideNet(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.scale = RunningScale()
        hour = torch.arange(cfg.hours, dtype=torch.float32)
        angles = torch.stack([2 * math.pi * hour / period for period in (12.42, 12.0, 24.0)])
        self.register_buffer("clock", torch.cat([angles.sin(), angles.cos()]))
        self.enter = nn.Conv1d(1 + 6, cfg.channels, 1)
        self.blocks = nn.ModuleList([CausalBlock(cfg.channels, d, cfg.dropout) for d in cfg.dilations])
        self.leave = nn.Conv1d(cfg.channels, 1, 1)

    def forward(self, levels: Tensor, starts: Tensor) -> Tensor:
        """The change of the level (in metres) that is expected within the next hour, at every hour."""
        hours = starts[:, None] + torch.arange(levels.shape[1])
        clock = self.clock[:, hours].transpose(0, 1)
        x = torch.cat([self.scale(levels)[:, None], clock], dim=1)
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x).squeeze(1)


def evaluate(model: TideNet, windows, cfg: Config) -> float:
    model.eval()
    squares, hours = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(windows[0]), cfg.batch):
            levels, later, starts = (part[at : at + cfg.batch] for part in windows)
            guess = levels + model(levels, starts)
            squares += (guess - later).square().sum().item()
            hours += later.numel()
    return math.sqrt(squares / hours)


def session(cfg: Config, until: int) -> None:
    """Trains up to an epoch, from the checkpoint if there is one."""
    torch.manual_seed(cfg.seed)
    level = gauge(cfg)
    border = int(0.8 * cfg.hours)
    training, validation = cut(level, 0, border, cfg), cut(level, border, cfg.hours, cfg)
    model = TideNet(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    steps = cfg.epochs * math.ceil(len(training[0]) / cfg.batch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / cfg.warmup, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.02)
    )
    first = 0
    if Path(cfg.checkpoint).exists():
        saved = torch.load(cfg.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        torch.set_rng_state(saved["rng"])
        first = saved["epoch"]
    for epoch in range(first, until):
        model.train()
        order = torch.randperm(len(training[0]))
        for chosen in order.split(cfg.batch):
            levels, later, starts = (part[chosen] for part in training)
            change = model(levels, starts)
            loss = nn.functional.smooth_l1_loss(change, later - levels, beta=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        error = evaluate(model, validation, cfg)
        print(f"epoch {epoch + 1} loss {loss.item():.4f} error {100 * error:.1f} cm")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save({**state, "epoch": until, "rng": torch.get_rng_state(), "config": asdict(cfg)}, cfg.checkpoint)


if __name__ == "__main__":
    config = Config()
    Path(config.checkpoint).unlink(missing_ok=True)
    session(config, until=3)
    session(config, until=6)
