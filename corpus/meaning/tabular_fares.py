"""Taxi fares from mixed columns: vocabulary coding, imputation, out-of-fold driver encoding, embeddings + MLP."""
import argparse
import copy
from collections import Counter

import numpy as np
import torch
from torch import nn

CATEGORICAL = ["city", "vehicle", "weekday"]
NUMERIC = ["distance_km", "hour", "passengers", "surge"]
TARGET = "fare"


def make_trips(n, seed):
    """A table as a dict of columns. `fare_per_km` is written by the meter after the ride, it is not a feature."""
    rng = np.random.default_rng(seed)
    cities = np.array([f"city_{i:02d}" for i in range(14)])
    vehicles = np.array(["bike", "saloon", "van", "limo"])
    drivers = np.array([f"drv{i:04d}" for i in range(450)])
    c = rng.choice(14, n, p=np.arange(1, 15) / 105)
    v = rng.choice(4, n, p=[0.15, 0.55, 0.2, 0.1])
    d = rng.integers(0, 450, n)
    distance = rng.gamma(2.0, 3.0, n) + 0.4
    hour = rng.integers(0, 24, n).astype(float)
    surge = 1 + 0.8 * rng.random(n) * ((hour > 16) & (hour < 21))
    per_km = (0.8 + 0.12 * rng.permutation(14)[c]) * np.array([0.6, 1.0, 1.4, 2.6])[v]
    quality = rng.normal(0, 0.22, 450)[d]
    fare = (3 + per_km * distance) * surge * np.exp(quality + rng.normal(0, 0.08, n))
    table = {"city": cities[c], "vehicle": vehicles[v], "driver": drivers[d], "weekday": rng.integers(0, 7, n).astype(str),
             "distance_km": distance, "hour": hour, "passengers": rng.integers(1, 5, n).astype(float), "surge": surge,
             "fare": fare, "fare_per_km": fare / distance}
    table["surge"] = np.where(rng.random(n) < 0.08, np.nan, surge)
    return table


def rows(table, index):
    return {name: column[index] for name, column in table.items()}


class Preprocessor:
    """Everything is learned from the rows given to `fit`; unknown categories get code 0."""

    def __init__(self, folds=5, smoothing=2.0, seed=0):
        self.folds, self.smoothing, self.seed = folds, smoothing, seed

    def fit(self, table):
        self.vocab = {c: {v: i + 1 for i, (v, _) in enumerate(Counter(table[c]).most_common())} for c in CATEGORICAL}
        self.median = {c: np.nanmedian(table[c]) for c in NUMERIC}
        filled = np.stack([self.fill(table, c) for c in NUMERIC], axis=1)
        self.mean, self.std = filled.mean(axis=0), filled.std(axis=0)
        y = np.log1p(table[TARGET])
        self.y_mean, self.y_std = y.mean(), y.std()
        self.driver_value = self.encode_drivers(table["driver"], self.scaled_target(table))
        return self

    def fill(self, table, c):
        return np.where(np.isnan(table[c]), self.median[c], table[c])

    def scaled_target(self, table):
        return (np.log1p(table[TARGET]) - self.y_mean) / self.y_std

    def encode_drivers(self, driver, y):
        total, count = Counter(), Counter(driver)
        for name, value in zip(driver, y):
            total[name] += value
        return {name: total[name] / (count[name] + self.smoothing) for name in count}

    def out_of_fold_drivers(self, table):
        y, out = self.scaled_target(table), np.zeros(len(table["driver"]))
        fold = np.random.default_rng(self.seed).integers(0, self.folds, len(y))
        for k in range(self.folds):
            known = self.encode_drivers(table["driver"][fold != k], y[fold != k])
            out[fold == k] = [known.get(name, 0.0) for name in table["driver"][fold == k]]
        return out

    def transform(self, table, training=False):
        codes = np.stack([[self.vocab[c].get(v, 0) for v in table[c]] for c in CATEGORICAL], axis=1)
        filled = np.stack([self.fill(table, c) for c in NUMERIC], axis=1)
        numbers = (filled - self.mean) / self.std
        drivers = self.out_of_fold_drivers(table) if training else np.array([self.driver_value.get(n, 0.0) for n in table["driver"]])
        missing = np.stack([np.isnan(table[c]) for c in NUMERIC], axis=1).astype(float)
        dense = np.concatenate([numbers, missing, drivers[:, None]], axis=1)
        y = torch.tensor(self.scaled_target(table), dtype=torch.float32)
        return torch.tensor(codes), torch.tensor(dense, dtype=torch.float32), y


class FareNet(nn.Module):
    def __init__(self, sizes, n_dense, dim=6, hidden=96):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(size, dim) for size in sizes])
        self.mlp = nn.Sequential(nn.Linear(dim * len(sizes) + n_dense, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.05),
                                 nn.Linear(hidden, hidden // 2), nn.ReLU(), nn.Linear(hidden // 2, 1))

    def forward(self, codes, dense):
        parts = [table(codes[:, i]) for i, table in enumerate(self.embeddings)]
        return self.mlp(torch.cat([*parts, dense], dim=1)).squeeze(1)


@torch.no_grad()
def rmse_in_money(model, prep, data):
    model.eval()
    codes, dense, y = data
    unscale = lambda z: torch.expm1(z * float(prep.y_std) + float(prep.y_mean))
    return (unscale(model(codes, dense)) - unscale(y)).pow(2).mean().sqrt().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=4200)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    trips = make_trips(args.rows, args.seed)
    order = np.random.default_rng(args.seed + 1).permutation(args.rows)
    cut_a, cut_b = int(0.66 * args.rows), int(0.83 * args.rows)
    train_rows, val_rows, test_rows = rows(trips, order[:cut_a]), rows(trips, order[cut_a:cut_b]), rows(trips, order[cut_b:])
    prep = Preprocessor(seed=args.seed).fit(train_rows)
    train, val, test = prep.transform(train_rows, training=True), prep.transform(val_rows), prep.transform(test_rows)

    sizes = [len(prep.vocab[c]) + 1 for c in CATEGORICAL]
    model = FareNet(sizes, train[1].shape[1])
    optimizer = torch.optim.AdamW([
        {"params": model.mlp.parameters(), "weight_decay": 1e-2},
        {"params": model.embeddings.parameters(), "weight_decay": 0.0, "lr": 2 * args.lr},
    ], lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    best, best_state = float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for pick in torch.randperm(len(train[2])).split(args.batch):
            codes, dense, y = (part[pick] for part in train)
            loss = nn.functional.mse_loss(model(codes, dense), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(pick)
        schedule.step()
        val_rmse = rmse_in_money(model, prep, val)
        if val_rmse < best:
            best, best_state = val_rmse, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}  train mse {running / len(train[2]):.4f}  val rmse {val_rmse:.3f}")

    model.load_state_dict(best_state)
    spread = float(np.std(test_rows[TARGET]))
    print(f"final: train mse {running / len(train[2]):.4f}  val rmse {best:.3f}  test rmse {rmse_in_money(model, prep, test):.3f}  (fare std {spread:.2f})")


if __name__ == "__main__":
    main()
