"""Rents of flats from a table: an MLP on standardised columns, scored in the unit of the table."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()

rng = np.random.default_rng(4)
torch.manual_seed(4)


def read_table(rows):
    area = rng.gamma(6.0, 12.0, rows)
    rooms = np.clip(np.round(area / 25 + rng.normal(0, 0.6, rows)), 1, 7)
    floor = rng.integers(0, 9, rows)
    year = rng.integers(1900, 2024, rows)
    distance = rng.exponential(4.0, rows)
    district = rng.integers(0, 5, rows)
    rent = 200 + 9.5 * area - 35 * distance + 60 * district + 2.0 * np.maximum(0, year - 1990) * (floor > 2)
    columns = np.stack([area, rooms, floor, year, distance, *(district == each for each in range(5))], 1)
    return columns.astype(np.float32), (rent + rng.normal(0, 60, rows)).astype(np.float32)


class Flats(Dataset):
    def __init__(self, columns, rents):
        self.columns, self.rents = torch.from_numpy(columns), torch.from_numpy(rents)

    def __len__(self):
        return len(self.rents)

    def __getitem__(self, place):
        return {"features": self.columns[place], "rent": self.rents[place]}


columns, rents = read_table(2600)
order = rng.permutation(len(rents))
columns, rents = columns[order], rents[order]
mean, spread = columns[:2000].mean(0), columns[:2000].std(0)
middle, scale = rents[:2000].mean(), rents[:2000].std()
columns = (columns - mean) / spread
train = DataLoader(Flats(columns[:2000], (rents[:2000] - middle) / scale), batch_size=50, shuffle=True)
valid = DataLoader(Flats(columns[2000:], rents[2000:]), batch_size=100)

model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for batch in train:
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(batch["features"]).squeeze(1), batch["rent"])
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    errors, squares = 0.0, 0.0
    with torch.inference_mode():
        for batch in valid:
            predicted = model(batch["features"]).squeeze(1) * float(scale) + float(middle)
            errors += (predicted - batch["rent"]).abs().sum().item()
            squares += (predicted - batch["rent"]).square().sum().item()
    count = len(valid.dataset)
    print(f"epoch {epoch + 1}: train {total / len(train):.4f}  val MAE {errors / count:.2f}  RMSE {(squares / count) ** 0.5:.2f}")
