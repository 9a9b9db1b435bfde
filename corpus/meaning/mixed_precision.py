"""Forecast the electric load of the next twelve hours; bf16 autocast, gradient accumulation and clipping."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn

LOOKBACK, HORIZON = 48, 12


def simulate_load(hours, seed):
    """Megawatts: daily and weekly cycles, slow growth, autocorrelated weather, noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    weather = np.zeros(hours)
    for i in range(1, hours):
        weather[i] = 0.97 * weather[i - 1] + rng.normal(scale=6.0)
    daily = 90 * np.sin(2 * np.pi * (t - 8) / 24) + 30 * np.sin(4 * np.pi * t / 24 + 0.7)
    weekly = np.where((t // 24) % 7 >= 5, -70.0, 0.0)
    load = 600 + 0.02 * t + daily + weekly + weather + rng.normal(scale=8.0, size=hours)
    return torch.tensor(load, dtype=torch.float32)


class LoadWindows:
    """Windows of a stretch of the series, with the hour of day at which the forecast starts."""

    def __init__(self, series, first, last, mean, std):
        self.series = (series - mean) / std
        self.starts = torch.arange(first, last - LOOKBACK - HORIZON + 1)

    def __len__(self):
        return len(self.starts)

    def batch(self, rows):
        begin = self.starts[rows][:, None]
        past = self.series[begin + torch.arange(LOOKBACK)]
        future = self.series[begin + LOOKBACK + torch.arange(HORIZON)]
        angle = 2 * math.pi * (begin + LOOKBACK).float() / torch.tensor([24.0, 168.0])
        return torch.cat([past, angle.sin(), angle.cos()], dim=1), future


class ResidualBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.wide = nn.Linear(dim, 2 * dim)
        self.narrow = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Forecaster(nn.Module):
    def __init__(self, dim=80, depth=2):
        super().__init__()
        self.enter = nn.Linear(LOOKBACK + 4, dim)
        self.blocks = nn.Sequential(*[ResidualBlock(dim) for _ in range(depth)])
        self.leave = nn.Linear(dim, HORIZON)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)))


def warmup_cosine(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def micro_batches(n_windows, size):
    while True:
        yield from torch.randperm(n_windows).split(size)[:-1]


def train(model, data, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = warmup_cosine(optimizer, warmup=args.warmup, total=args.updates)
    stream = micro_batches(len(data), args.micro_batch)
    model.train()
    recent = 0.0
    for update in range(args.updates):
        optimizer.zero_grad(set_to_none=True)
        step_loss = 0.0
        for _ in range(args.accumulate):
            x, y = data.batch(next(stream))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                forecast = model(x)
            loss = nn.functional.smooth_l1_loss(forecast.float(), y) / args.accumulate
            loss.backward()
            step_loss += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()
        recent = step_loss if update == 0 else 0.9 * recent + 0.1 * step_loss
        if (update + 1) % 30 == 0:
            print(f"update {update + 1}: loss {recent:.4f} gradient norm {norm:.3f}")
    return recent


@torch.no_grad()
def mean_error(model, data, std):
    """Mean absolute error in megawatts of the model, and of repeating the same hours of the day before."""
    model.eval()
    error, naive = [], []
    for rows in torch.arange(len(data)).split(512):
        x, y = data.batch(rows)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            forecast = model(x)
        error.append((forecast.float() - y).abs() * std)
        naive.append((x[:, LOOKBACK - 24 : LOOKBACK - 24 + HORIZON] - y).abs() * std)
    return torch.cat(error).mean().item(), torch.cat(naive).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=120)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.12)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--clip", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    series = simulate_load(hours=24 * 200, seed=args.seed)
    train_end, valid_end = 24 * 140, 24 * 170
    mean, std = series[:train_end].mean(), series[:train_end].std()
    train_data = LoadWindows(series, 0, train_end, mean, std)
    valid_data = LoadWindows(series, train_end, valid_end, mean, std)
    test_data = LoadWindows(series, valid_end, len(series), mean, std)

    model = Forecaster()
    final = train(model, train_data, args)
    print(f"train loss {final:.4f}, valid error {mean_error(model, valid_data, std)[0]:.2f} MW")
    error, naive = mean_error(model, test_data, std)
    print(f"test error {error:.2f} MW, day-before baseline {naive:.2f} MW, skill {1 - error / naive:.3f}")


if __name__ == "__main__":
    main()
