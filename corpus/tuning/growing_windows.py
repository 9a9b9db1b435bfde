"""Load of a power grid, one hour ahead: a GRU reads windows of the series that grow from a few hours to two days."""

import argparse

import numpy as np
import torch
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=3600)
    parser.add_argument("--windows", type=int, nargs="+", default=[6, 12, 24, 36, 48])
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--steps-per-window", type=int, default=25)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=12)
    return parser.parse_args()


def series(hours, rng):
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * t / 24) + 0.4 * np.sin(4 * np.pi * t / 24 + 1)
    weekly = np.where((t // 24) % 7 >= 5, -0.6, 0.1)
    slow = np.zeros(hours)
    for i in range(1, hours):
        slow[i] = 0.95 * slow[i - 1] + 0.1 * rng.standard_normal()
    return 50 + 12 * (daily + weekly + slow) + rng.standard_normal(hours)


class Forecast(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.read = nn.GRU(3, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, window):
        states, _ = self.read(window)
        return self.out(states).squeeze(-1)


def features(load, mean, std):
    """Load, and the hour of the day as a point on a circle."""
    angle = 2 * np.pi * np.arange(len(load)) / 24
    columns = np.stack([(load - mean) / std, np.sin(angle), np.cos(angle)], axis=1)
    return torch.from_numpy(columns.astype(np.float32))


def cut(table, starts, length):
    """Windows, and for each hour of them the load of the hour after."""
    at = torch.as_tensor(starts)[:, None] + torch.arange(length + 1)
    rows = table[at]
    return rows[:, :-1], rows[:, 1:, 0]


def evaluate(model, table, length):
    """Squared error of the last hour of windows that cover the table."""
    model.eval()
    starts = np.arange(0, len(table) - length - 1, 5)
    total = 0.0
    with torch.no_grad():
        for part in np.array_split(starts, 4):
            inputs, targets = cut(table, part, length)
            total += (model(inputs)[:, -1] - targets[:, -1]).square().sum().item()
    return total / len(starts)


def main():
    args = parse()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    load = series(args.hours, rng)
    border = args.hours * 5 // 6 // 24 * 24  # a midnight
    mean, std = load[:border].mean(), load[:border].std()
    past, future = features(load[:border], mean, std), features(load[border:], mean, std)

    model = Forecast(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    total_steps = len(args.windows) * args.steps_per_window
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=total_steps)
    for length in args.windows:
        model.train()
        losses = []
        for _ in range(args.steps_per_window):
            starts = rng.integers(0, len(past) - length - 1, args.batch_size)
            inputs, targets = cut(past, starts, length)
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        error = evaluate(model, future, max(args.windows))
        print(f"windows of {length:2d} hours: loss {np.mean(losses):.4f}, error on the future {error:.4f}")


if __name__ == "__main__":
    main()
