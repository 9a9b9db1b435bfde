"""Predict a lab value from visit records; choose the network by grouped cross-validation, then test it once.

Every patient has several visits, so folds are made of whole patients. Standardisation is part of what is
fitted in each fold.
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Candidate:
    name: str
    hidden: int
    dropout: float
    weight_decay: float


CANDIDATES = [
    Candidate("narrow", hidden=12, dropout=0.0, weight_decay=1e-2),
    Candidate("wide", hidden=64, dropout=0.2, weight_decay=1e-3),
]
FOLDS = 3
EPOCHS = 6
REFIT_EPOCHS = 10
BATCH = 100
LR = 2e-2


def simulate_visits(n_patients, visits, n_features, rng):
    """Rows of one patient share habits (in the features) and an offset (in the lab value)."""
    habits = rng.normal(size=(n_patients, n_features))
    offset = rng.normal(scale=6.0, size=n_patients)
    patient = np.repeat(np.arange(n_patients), visits)
    x = 0.9 * habits[patient] + 0.5 * rng.normal(size=(n_patients * visits, n_features))
    weights = rng.normal(size=n_features)
    y = 120 + 7 * x @ weights / np.sqrt(n_features) * 2 + 8 * np.tanh(x[:, 0] * x[:, 1]) + offset[patient]
    y = y + rng.normal(scale=2.0, size=len(y))
    x = x * rng.uniform(0.2, 30, size=n_features) + rng.uniform(-40, 40, size=n_features)
    return x.astype(np.float32), y.astype(np.float32), patient


def grouped_folds(groups, k, rng):
    """Fold number of every row; all rows of one group get the same number."""
    unique = np.unique(groups)
    fold_of_group = rng.permutation(len(unique)) % k
    return fold_of_group[np.searchsorted(unique, groups)]


class Standardiser:
    def fit(self, x, y):
        self.x_mean, self.x_std = x.mean(axis=0), x.std(axis=0)
        self.y_mean, self.y_std = y.mean(), y.std()
        return self

    def inputs(self, x):
        return torch.from_numpy((x - self.x_mean) / self.x_std)

    def targets(self, y):
        return torch.from_numpy((y - self.y_mean) / self.y_std)

    def to_units(self, z):
        return z.numpy() * self.y_std + self.y_mean


def build_model(candidate, n_features):
    return nn.Sequential(
        nn.Linear(n_features, candidate.hidden),
        nn.SiLU(),
        nn.Dropout(candidate.dropout),
        nn.Linear(candidate.hidden, candidate.hidden),
        nn.SiLU(),
        nn.Linear(candidate.hidden, 1),
    )


def build_optimizer(model, candidate):
    return torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=candidate.weight_decay)


def fit(model, optimizer, x, y, epochs):
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            prediction = model(x[rows]).squeeze(1)
            loss = nn.functional.mse_loss(prediction, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def predict(model, scaler, x):
    model.eval()
    with torch.no_grad():
        return scaler.to_units(model(scaler.inputs(x)).squeeze(1))


def rmse(prediction, y):
    return float(np.sqrt(np.mean((prediction - y) ** 2)))


def cross_validate(candidate, x, y, fold):
    out_of_fold = np.zeros_like(y)
    for k in range(FOLDS):
        held_out = fold == k
        scaler = Standardiser().fit(x[~held_out], y[~held_out])
        model = build_model(candidate, x.shape[1])
        optimizer = build_optimizer(model, candidate)
        fit(model, optimizer, scaler.inputs(x[~held_out]), scaler.targets(y[~held_out]), EPOCHS)
        out_of_fold[held_out] = predict(model, scaler, x[held_out])
    return rmse(out_of_fold, y)


def main():
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    x, y, patient = simulate_visits(n_patients=180, visits=5, n_features=14, rng=rng)
    is_test = patient >= 120
    dev_x, dev_y, dev_patient = x[~is_test], y[~is_test], patient[~is_test]
    test_x, test_y = x[is_test], y[is_test]

    fold = grouped_folds(dev_patient, FOLDS, rng)
    scores = {}
    for candidate in CANDIDATES:
        scores[candidate.name] = cross_validate(candidate, dev_x, dev_y, fold)
        print(f"{candidate.name}: cross-validated rmse {scores[candidate.name]:.3f}")
    chosen = min(CANDIDATES, key=lambda c: scores[c.name])

    scaler = Standardiser().fit(dev_x, dev_y)
    model = build_model(chosen, dev_x.shape[1])
    optimizer = build_optimizer(model, chosen)
    fit(model, optimizer, scaler.inputs(dev_x), scaler.targets(dev_y), REFIT_EPOCHS)
    train_rmse = rmse(predict(model, scaler, dev_x), dev_y)
    test_rmse = rmse(predict(model, scaler, test_x), test_y)
    spread = float(test_y.std())
    print(f"chosen {chosen.name}: train rmse {train_rmse:.3f} test rmse {test_rmse:.3f} (spread {spread:.3f})")


if __name__ == "__main__":
    main()
