"""Yields of orchards with five folds: a network for each, stopped early on trees neither trained on nor scored."""

import copy

import numpy as np
import torch
from torch import nn

FOLDS, PATIENCE, MAX_EPOCHS, BATCH = 5, 3, 12, 20


def orchard(count, rng):
    """Rain, sun, age of the trees, height above the sea and bees; the yield in baskets."""
    units = np.array([120.0, 30.0, 8.0, 150.0, 4.0])
    table = np.abs(units * (2 + rng.standard_normal((count, 5)) * 0.6))
    scaled = table / units - 2
    baskets = 14 + 5 * scaled[:, 0] - 4 * scaled[:, 2] ** 2 + 3 * scaled[:, 4] + rng.standard_normal(count)
    return table.astype(np.float32), baskets.astype(np.float32)


def make_model():
    return nn.Sequential(
        nn.Linear(5, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)
    )


def scaled_by(x, y, rows):
    """Tables and baskets in units of the rows that are trained on."""
    x_mean, x_std, y_mean, y_std = x[rows].mean(0), x[rows].std(0), y[rows].mean(), y[rows].std()
    return torch.from_numpy((x - x_mean) / x_std), torch.from_numpy((y - y_mean) / y_std), float(y_std)


@torch.no_grad()
def error(model, x, y):
    model.eval()
    return (model(x) - y).pow(2).mean().item()


def train_fold(x, y, train_rows, stop_rows):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best, best_state, waited = float("inf"), None, 0
    for epoch in range(1, MAX_EPOCHS + 1):
        model.train()
        for batch in np.array_split(np.random.permutation(train_rows), len(train_rows) // BATCH):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        held = error(model, x[stop_rows], y[stop_rows])
        if held < best:
            best, best_state, waited = held, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    model.load_state_dict(best_state)
    return model, epoch


np.random.seed(6)
torch.manual_seed(6)
table, baskets = orchard(300, np.random.default_rng(6))
folds = np.array_split(np.random.permutation(len(table)), FOLDS)
scores = []
for k in range(FOLDS):
    test_rows = folds[k]
    rest = np.concatenate([folds[j] for j in range(FOLDS) if j != k])
    stop_rows, train_rows = rest[:40], rest[40:]
    x, y, unit = scaled_by(table, baskets, train_rows)
    model, epochs = train_fold(x, y, train_rows, stop_rows)
    score = unit * error(model, x[test_rows], y[test_rows]) ** 0.5
    scores.append(score)
    print(f"fold {k + 1} epochs {epochs} error {score:.2f} baskets")
    torch.save(model.state_dict(), f"orchard_{k + 1}.pt")
print(f"error {np.mean(scores):.2f} +- {np.std(scores):.2f} baskets, spread of the yields {baskets.std():.2f}")
