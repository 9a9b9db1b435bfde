"""Cross-validation by hand on a small table of soil samples: a new model and a new scaler in every fold."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(31)
FOLDS = 4


def load():
    clay = rng.uniform(5, 60, 240)
    ph = rng.normal(6.5, 0.8, 240)
    depth = rng.choice([10, 30, 60, 90], 240)
    nitrogen = rng.lognormal(0, 0.4, 240)
    carbon = 0.03 * clay + 2.0 * np.exp(-depth / 40) + 0.6 * np.log(nitrogen) - 0.3 * (ph - 6.5) ** 2
    carbon = carbon + rng.normal(0, 0.15, 240)
    return np.c_[clay, ph, depth, np.log(nitrogen)], carbon


class Scaler:
    """What StandardScaler of sklearn does."""

    def fit(self, a):
        self.mean_, self.scale_ = a.mean(axis=0), a.std(axis=0)
        return self

    def transform(self, a):
        return torch.as_tensor((a - self.mean_) / self.scale_, dtype=torch.float32)

    def inverse_transform(self, a):
        return a.numpy() * self.scale_ + self.mean_


def batches(x, y, size):
    for rows in torch.randperm(len(x)).split(size):
        yield x[rows], y[rows]


def fit_fold(train_x, train_y, test_x):
    sx, sy = Scaler().fit(train_x), Scaler().fit(train_y)
    x, y = sx.transform(train_x), sy.transform(train_y)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 1), nn.Flatten(0))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    criterion = nn.HuberLoss(delta=1.0)
    history = []
    for epoch in range(14):
        model.train()
        losses = []
        for xb, yb in batches(x, y, 20):
            loss = criterion(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        history.append(np.mean(losses))
    model.eval()
    with torch.no_grad():
        return sy.inverse_transform(model(sx.transform(test_x))), history


def r2(truth, guess):
    return 1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()


if __name__ == "__main__":
    X, y = load()
    parts = np.array_split(rng.permutation(len(X)), FOLDS)
    out_of_fold = np.zeros_like(y)
    for k, held in enumerate(parts):
        torch.manual_seed(k)
        rest = np.concatenate([part for j, part in enumerate(parts) if j != k])
        out_of_fold[held], history = fit_fold(X[rest], y[rest], X[held])
        print(f"fold {k}: {history[0]:.3f} -> {history[-1]:.3f}, r2 {r2(y[held], out_of_fold[held]):.3f}")
    print(f"all folds: r2 {r2(y, out_of_fold):.3f}")
