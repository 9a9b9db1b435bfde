"""Twelve-hour-ahead forecasts of electric load at several sites with a GRU over sliding windows."""
import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    n_sites: int = 6
    n_hours: int = 1300
    lookback: int = 48
    horizon: int = 12
    train_stride: int = 3
    smooth: int = 6
    hidden: int = 32
    batch: int = 80
    epochs: int = 6
    peak_lr: float = 1.2e-2
    seed: int = 17


def simulate(cfg):
    """Daily and weekly cycles, growth, and an autoregressive disturbance; one row per site."""
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.n_hours)
    rows = []
    for _ in range(cfg.n_sites):
        level, swing = rng.uniform(40, 160), rng.uniform(0.15, 0.3)
        shift = rng.integers(0, 6)
        noise = np.zeros(cfg.n_hours)
        for i in range(1, cfg.n_hours):
            noise[i] = 0.9 * noise[i - 1] + rng.normal(0, 0.03)
        daily = swing * np.sin(2 * np.pi * (t - shift) / 24) + 0.08 * np.sin(4 * np.pi * t / 24)
        weekly = -0.15 * ((t // 24) % 7 >= 5)
        rows.append(level * (1 + daily + weekly + noise + 0.25 * t / cfg.n_hours))
    return np.stack(rows)


def trailing_mean(series, width):
    """Mean of the current and the `width - 1` hours before it."""
    padded = np.concatenate([np.repeat(series[:, :1], width - 1, axis=1), series], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, width, axis=1).mean(axis=-1)


class Windows(Dataset):
    """One item: features (lookback, 4), site number, targets (horizon,)."""

    def __init__(self, cfg, scaled, starts):
        self.cfg, self.starts = cfg, starts
        hour = 2 * np.pi * (np.arange(cfg.n_hours) % 24) / 24
        clock = np.broadcast_to(np.stack([np.sin(hour), np.cos(hour)]), (cfg.n_sites, 2, cfg.n_hours))
        stacked = np.concatenate([scaled[:, None], trailing_mean(scaled, cfg.smooth)[:, None], clock], axis=1)
        self.features = torch.tensor(stacked.transpose(0, 2, 1).copy(), dtype=torch.float32)
        self.values = torch.tensor(scaled, dtype=torch.float32)

    def __len__(self):
        return self.cfg.n_sites * len(self.starts)

    def __getitem__(self, i):
        site, start = i // len(self.starts), self.starts[i % len(self.starts)]
        end = start + self.cfg.lookback
        return self.features[site, start:end], site, self.values[site, end:end + self.cfg.horizon]


class LoadForecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.site = nn.Embedding(cfg.n_sites, 4)
        self.rnn = nn.GRU(4, cfg.hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(cfg.hidden + 4, 48), nn.ReLU(), nn.Linear(48, cfg.horizon))

    def forward(self, x, site):
        out, _ = self.rnn(x)
        last = x[:, -1, :1]
        return last + self.head(torch.cat([out[:, -1], self.site(site)], dim=1))


def split_starts(cfg):
    """Window starts in time order: every target of a later part lies after all targets of the earlier ones."""
    span = cfg.lookback + cfg.horizon
    starts = np.arange(0, cfg.n_hours - span + 1)
    a, b = int(0.7 * cfg.n_hours), int(0.85 * cfg.n_hours)
    target_from, target_to = starts + cfg.lookback, starts + span
    train = starts[target_to <= a][::cfg.train_stride]
    val = starts[(target_from >= a) & (target_to <= b)][::2]
    test = starts[target_from >= b][::2]
    return train, val, test, a


@torch.no_grad()
def mae_in_units(model, loader, scale):
    model.eval()
    total, count = 0.0, 0
    for x, site, y in loader:
        gap = (model(x, site) - y).abs() * scale[site][:, None]
        total, count = total + gap.sum().item(), count + gap.numel()
    return total / count


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    load = simulate(cfg)
    train_starts, val_starts, test_starts, train_end = split_starts(cfg)
    history = load[:, :train_end]
    mean, std = history.mean(axis=1, keepdims=True), history.std(axis=1, keepdims=True)
    scaled = (load - mean) / std
    scale = torch.tensor(std[:, 0], dtype=torch.float32)

    train_loader = DataLoader(Windows(cfg, scaled, train_starts), batch_size=cfg.batch, shuffle=True)
    val_loader = DataLoader(Windows(cfg, scaled, val_starts), batch_size=256)
    test_loader = DataLoader(Windows(cfg, scaled, test_starts), batch_size=256)

    model = LoadForecaster(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.peak_lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.peak_lr, total_steps=cfg.epochs * len(train_loader))
    criterion = nn.L1Loss()
    best, best_weights = float("inf"), None
    for epoch in range(cfg.epochs):
        model.train()
        losses = []
        for x, site, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x, site), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        val = mae_in_units(model, val_loader, scale)
        if val < best:
            best, best_weights = val, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}  train loss {np.mean(losses):.4f}  val MAE {val:.3f}")

    model.load_state_dict(best_weights)
    naive = np.abs(load[:, train_end + 24:] - load[:, train_end:-24]).mean()
    test = mae_in_units(model, test_loader, scale)
    print(f"final: train loss {np.mean(losses):.4f}  val MAE {best:.3f}  test MAE {test:.3f}  same-hour-yesterday MAE {naive:.3f}")


if __name__ == "__main__":
    main()
