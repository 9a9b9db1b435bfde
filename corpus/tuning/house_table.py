"""Rents from a table of flats: pandas-like numpy columns, standardised, an MLP with embeddings for the district."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def table(rows, seed):
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 160, rows)
    rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.7, rows)), 1, 7)
    year = rng.integers(1900, 2024, rows).astype(float)
    district = rng.integers(0, 8, rows)
    rent = 9 * area + 60 * rooms + 1.5 * (year - 1900) + 80 * np.sin(district) + rng.normal(0, 40, rows)
    return np.stack([area, rooms, year], axis=1), district, rent


class Standardise:
    def fit(self, values):
        self.mean, self.std = values.mean(axis=0), values.std(axis=0)
        return self

    def __call__(self, values):
        return ((values - self.mean) / self.std).astype(np.float32)


class RentModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.district = nn.Embedding(8, 4)
        self.first = nn.Linear(3 + 4, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.rent = nn.Linear(width, 1)

    def forward(self, columns, district):
        x = torch.cat([columns, self.district(district)], dim=1)
        x = torch.relu(self.first(x))
        x = torch.relu(self.norm(self.second(x)))
        return self.rent(x).squeeze(1)


def mean_error(model, loader, scale):
    """Mean absolute error in euros."""
    model.eval()
    error, flats = 0.0, 0
    with torch.no_grad():
        for columns, district, rent in loader:
            guess = model(columns, district)
            error += (guess - rent).abs().sum().item() * scale
            flats += len(rent)
    return error / flats


def main():
    torch.manual_seed(101)
    x, district, rent = table(400, seed=7)
    x_test, district_test, rent_test = table(90, seed=8)
    scale_x, scale_y = Standardise().fit(x), Standardise().fit(rent)
    train_set = TensorDataset(*map(torch.from_numpy, (scale_x(x), district, scale_y(rent))))
    test_set = TensorDataset(*map(torch.from_numpy, (scale_x(x_test), district_test, scale_y(rent_test))))
    train_loader = DataLoader(train_set, batch_size=25, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=32)
    model = RentModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=3 * len(train_loader))
    for epoch in range(3):
        model.train()
        total = 0.0
        for columns, district, rent in train_loader:
            guess = model(columns, district)
            loss = ((guess - rent) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"{epoch}: mse {total / len(train_loader):.3f}, {mean_error(model, test_loader, scale_y.std):.0f} euros")


if __name__ == "__main__":
    main()
