"""Peaks of floods from a table of storms: mean and spread of the level, one flat script, batches cut by hand."""

import copy

import numpy as np
import torch
from torch import nn

EPOCHS = 6
BATCH = 32
BASINS = 6

torch.manual_seed(17)
rng = np.random.default_rng(17)

# ---- the table: one row per storm
rows = 700
rain = rng.gamma(2.0, 18.0, rows)  # mm
soil = rng.uniform(0.1, 0.5, rows)  # share of water in the ground
snow = np.where(rng.random(rows) < 0.3, rng.exponential(40.0, rows), 0.0)  # mm
upstream = rng.normal(240.0, 60.0, rows)  # cm
basin = rng.integers(0, BASINS, rows)
peak = (
    0.6 * upstream
    + (1.5 + 2.5 * soil) * rain
    + 0.8 * snow * (rain > 30)
    + 25.0 * np.cos(1.3 * basin)
    + rng.normal(0, 1, rows) * (6 + 0.15 * rain)
)

measured = np.stack([np.log1p(rain), soil, np.log1p(snow), upstream], axis=1)
one_hot = np.eye(BASINS)[basin]

# ---- split, then scale by what the training rows say
order = rng.permutation(rows)
train_rows, valid_rows, test_rows = order[:500], order[500:600], order[600:]
centre, width = measured[train_rows].mean(axis=0), measured[train_rows].std(axis=0)
peak_centre, peak_width = peak[train_rows].mean(), peak[train_rows].std()
x = torch.tensor(np.concatenate([(measured - centre) / width, one_hot], axis=1), dtype=torch.float32)
y = torch.tensor((peak - peak_centre) / peak_width, dtype=torch.float32)
train_rows, valid_rows, test_rows = map(torch.from_numpy, (train_rows, valid_rows, test_rows))

# ---- the net gives two numbers per storm: the mean and the logarithm of the variance
net = nn.Sequential(
    nn.Linear(4 + BASINS, 48),
    nn.SiLU(),
    nn.Dropout(0.05),
    nn.Linear(48, 48),
    nn.SiLU(),
    nn.Linear(48, 2),
)
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS, eta_min=2e-4)
best_error, best_weights = float("inf"), copy.deepcopy(net.state_dict())

for epoch in range(EPOCHS):
    net.train()
    shuffled = train_rows[torch.randperm(len(train_rows))]
    running = 0.0
    for start in range(0, len(shuffled), BATCH):
        chosen = shuffled[start : start + BATCH]
        storm, level = x[chosen], y[chosen]
        mean, log_var = net(storm).unbind(1)
        surprise = 0.5 * (log_var + (level - mean) ** 2 / log_var.exp())
        loss = surprise.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        running += loss.item() * len(chosen)
    scheduler.step()

    net.eval()
    off = 0.0
    with torch.no_grad():
        for start in range(0, len(valid_rows), BATCH):
            chosen = valid_rows[start : start + BATCH]
            guess = net(x[chosen])[:, 0]
            off += (guess - y[chosen]).abs().sum().item()
    error = off / len(valid_rows) * peak_width
    if error < best_error:
        best_error = error
        best_weights = copy.deepcopy(net.state_dict())
    print(f"epoch {epoch}: surprise {running / len(train_rows):+.3f}, off by {error:.1f} cm")

net.load_state_dict(best_weights)
net.eval()
with torch.no_grad():
    out = net(x[test_rows])
    off = (out[:, 0] - y[test_rows]).abs().mean().item() * peak_width
    inside = ((out[:, 0] - y[test_rows]).abs() < 2 * (0.5 * out[:, 1]).exp()).float().mean().item()
print(f"test: off by {off:.1f} cm, {100 * inside:.0f}% within two spreads")
torch.save({"weights": best_weights, "centre": centre, "width": width}, "flood.pt")
