"""Hourly hires of bicycles from weather and calendar: one script, numpy columns, batches cut from a permutation."""

from collections import deque

import numpy as np
import torch
from torch import nn

SEED, EPOCHS, BATCH, WIDTH = 5, 8, 32, 48
rng = np.random.default_rng(SEED)
torch.manual_seed(SEED)

# ---- the table
rows = 900
hour = rng.integers(0, 24, rows)
weekday = rng.integers(0, 7, rows)
temperature = rng.normal(14, 8, rows)
wind = rng.gamma(2.0, 6.0, rows)
pressure = rng.normal(1013, 9, rows)
wind[rng.random(rows) < 0.04] = np.nan
rush = np.exp(-((hour - 8) ** 2) / 6) + np.exp(-((hour - 17) ** 2) / 8)
hires = 60 + 220 * rush * (weekday < 5) + 6 * temperature - 2.5 * np.nan_to_num(wind, nan=12.0)
hires = np.clip(hires + rng.normal(0, 15, rows), 0, None)

numbers = np.stack([temperature, wind, pressure], axis=1)
cyclic = np.stack([np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12), weekday < 5], axis=1)

complete = ~np.isnan(numbers).any(axis=1)
numbers, cyclic, hires = numbers[complete], cyclic[complete], hires[complete]
rows = len(hires)

order = rng.permutation(rows)
n_test = rows // 6
test_rows, train_rows = order[:n_test], order[n_test:]

centre, spread = numbers[train_rows].mean(axis=0), numbers[train_rows].std(axis=0)
features = np.concatenate([(numbers - centre) / spread, cyclic], axis=1).astype(np.float32)
y_mean, y_std = hires[train_rows].mean(), hires[train_rows].std()
target = ((hires - y_mean) / y_std).astype(np.float32)

X_train, y_train = torch.from_numpy(features[train_rows]), torch.from_numpy(target[train_rows])
X_test, y_test = torch.from_numpy(features[test_rows]), torch.from_numpy(target[test_rows])

# ---- the network
activation = nn.SiLU
model = nn.Sequential(
    nn.Linear(features.shape[1], WIDTH),
    activation(),
    nn.Linear(WIDTH, WIDTH),
    activation(),
    nn.Dropout(0.05),
    nn.Linear(WIDTH, 1),
    nn.Flatten(0),
)
for module in model:
    if isinstance(module, nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        nn.init.zeros_(module.bias)

optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
best_rmse, best_weights = float("inf"), None
recent = deque(maxlen=50)

# ---- training
for epoch in range(1, EPOCHS + 1):
    model.train()
    shuffled = torch.randperm(len(X_train))
    for start in range(0, len(shuffled), BATCH):
        pick = shuffled[start : start + BATCH]
        guess = model(X_train[pick])
        error = guess - y_train[pick]
        below_zero = torch.relu(-(guess * y_std + y_mean)) / y_std
        loss = (error**2).mean() + 0.1 * below_zero.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        recent.append(loss.item())

    model.eval()
    squares = 0.0
    with torch.no_grad():
        for start in range(0, len(X_test), BATCH):
            x, y = X_test[start : start + BATCH], y_test[start : start + BATCH]
            squares += ((model(x) - y) ** 2).sum().item()
    rmse = y_std * (squares / len(X_test)) ** 0.5
    plateau.step(rmse)
    if rmse < best_rmse:
        best_rmse = rmse
        best_weights = {name: value.clone() for name, value in model.state_dict().items()}
    print(
        f"epoch {epoch}: train {np.mean(recent):.3f}  test {rmse:.1f} hires  lr {optimizer.param_groups[0]['lr']:.1e}"
    )

model.load_state_dict(best_weights)
torch.save({"weights": best_weights, "centre": centre, "spread": spread, "y": (y_mean, y_std)}, "bikes.pt")
print(f"best {best_rmse:.1f} hires")
