"""Heights of high water from a harbour's table: numpy columns, batches indexed by hand, a gated MLP."""

import argparse

import numpy as np
import torch
from torch import nn

STATIONS = 6


def read_table(days, seed):
    rng = np.random.default_rng(seed)
    station = rng.integers(0, STATIONS, days)
    moon = rng.uniform(0, 2 * np.pi, days)  # age of the moon, as an angle
    wind = rng.gamma(2.0, 4.0, days)  # m/s
    bearing = rng.uniform(0, 2 * np.pi, days)
    pressure = rng.normal(1013, 9, days)  # hPa
    height = 380 + 70 * np.cos(2 * moon) + 5 * wind * np.cos(bearing - 0.6) - (pressure - 1013) + 15 * station
    height += rng.normal(0, 8, days)  # cm
    columns = [np.cos(2 * moon), np.sin(2 * moon), wind, np.cos(bearing), np.sin(bearing), pressure]
    return np.stack(columns, axis=1), station, height


def split(rows, share, seed):
    order = np.random.default_rng(seed).permutation(rows)
    cut = int(rows * share)
    return order[:cut], order[cut:]


def batches(rows, size, rng):
    order = rng.permutation(rows)
    for start in range(0, len(order), size):
        yield order[start : start + size]


class TideNet(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(STATIONS))
        self.enter = nn.Linear(columns, width)
        self.gate = nn.Linear(columns, width)
        self.hidden = nn.Linear(width, width)
        self.height = nn.Linear(width, 1)

    def forward(self, columns, station):
        x = torch.tanh(self.enter(columns)) * torch.sigmoid(self.gate(columns))
        x = torch.nn.functional.silu(self.hidden(x))
        return self.height(x).squeeze(1) + self.offset[station]


def held_out_error(model, table, rows, spread, size=50):
    """Root of the mean squared error, in centimetres."""
    columns, station, height = table
    model.eval()
    squares, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            guess = model(columns[part], station[part])
            squares += (guess - height[part]).square().sum().item()
            count += len(part)
    model.train()
    return spread * (squares / count) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(12)
    columns, station, height = read_table(640, seed=4)
    train_rows, held_rows = split(len(height), 0.8, seed=5)
    mean, std = columns[train_rows].mean(axis=0), columns[train_rows].std(axis=0)
    middle, spread = height[train_rows].mean(), height[train_rows].std()
    columns = (columns - mean) / std
    height = (height - middle) / spread
    table = (
        torch.tensor(columns, dtype=torch.float32),
        torch.tensor(station),
        torch.tensor(height, dtype=torch.float32),
    )
    model = TideNet(columns.shape[1], args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    rng = np.random.default_rng(6)
    for epoch in range(args.epochs):
        summed = 0.0
        for rows in batches(train_rows, args.batch, rng):
            guess = model(table[0][rows], table[1][rows])
            loss = (guess - table[2][rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            summed += loss.item() * len(rows)
        scheduler.step()
        error = held_out_error(model, table, held_rows, spread)
        print(f"epoch {epoch}: loss {summed / len(train_rows):.3f}, held out {error:.1f} cm")


if __name__ == "__main__":
    main()
