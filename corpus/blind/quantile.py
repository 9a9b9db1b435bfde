"""Multi-step quantile forecast of hourly load (10%, 50%, 90%) with a plain MLP over windows."""
import copy

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
rng = np.random.default_rng(0)

CONTEXT, HORIZON = 48, 12
QUANTILES = [0.1, 0.5, 0.9]

# hourly load in kW: day and week pattern, slow drift, noise that is larger and skewed at daytime
hours = np.arange(24 * 110)
day = np.sin(2 * np.pi * (hours % 24) / 24 - 1.5)
week = np.where((hours // 24) % 7 >= 5, -12.0, 4.0)
drift = np.cumsum(rng.normal(scale=0.35, size=len(hours)))
shock = np.zeros(len(hours))
for t in range(1, len(hours)):
    shock[t] = 0.8 * shock[t - 1] + rng.normal() * (1.5 + day[t])
load = 180 + 25 * day + week + drift + shock + rng.exponential(2.0, len(hours)) * (1.2 + day)
load = torch.tensor(load, dtype=torch.float32)
phase = torch.tensor(np.stack([np.sin(2 * np.pi * hours / 24), np.cos(2 * np.pi * hours / 24),
                               np.sin(2 * np.pi * hours / 168), np.cos(2 * np.pi * hours / 168)], 1), dtype=torch.float32)

n_train, n_valid = 24 * 50, 24 * 20
mean, std = load[:n_train].mean(), load[:n_train].std()
series = (load - mean) / std

# windows: CONTEXT past values and the calendar at the start of the horizon -> HORIZON future values
windows = series.unfold(0, CONTEXT + HORIZON, 1)
past, future = windows[:, :CONTEXT], windows[:, CONTEXT:]
calendar = phase[CONTEXT:CONTEXT + len(windows)]

start = torch.arange(len(windows))
end = start + CONTEXT + HORIZON
train_idx = start[end <= n_train]
valid_idx = start[(start >= n_train) & (end <= n_train + n_valid)]
test_idx = start[start >= n_train + n_valid]


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CONTEXT + 4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, HORIZON * len(QUANTILES))

    def forward(self, x, cal):
        level = x[:, -24:].mean(1, keepdim=True)
        h = self.body(torch.cat([x - level, cal], dim=1))
        return self.head(h).view(-1, HORIZON, len(QUANTILES)) + level.unsqueeze(-1)


def pinball(pred, target):
    q = torch.tensor(QUANTILES)
    error = target.unsqueeze(-1) - pred
    return torch.maximum(q * error, (q - 1) * error).mean()


@torch.no_grad()
def evaluate(model, idx):
    """Pinball loss in kW and coverage of the 10-90% band."""
    model.eval()
    pred = model(past[idx], calendar[idx]) * std + mean
    target = future[idx] * std + mean
    inside = (target >= pred[..., 0]) & (target <= pred[..., 2])
    return pinball(pred, target).item(), inside.float().mean().item()


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2)
print("before: test pinball %.3f kW, coverage %.3f" % evaluate(model, test_idx))

best_valid, best_state = float("inf"), None
for epoch in range(32):
    model.train()
    total = 0.0
    order = train_idx[torch.randperm(len(train_idx))]
    for batch in order.split(64):
        x, y = past[batch], future[batch]
        loss = pinball(model(x, calendar[batch]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    valid, coverage = evaluate(model, valid_idx)
    scheduler.step(valid)
    if valid < best_valid:
        best_valid, best_state = valid, copy.deepcopy(model.state_dict())
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1:2d}: train loss {total / len(train_idx):.4f}, valid pinball {valid:.3f} kW, coverage {coverage:.3f}")

model.load_state_dict(best_state)
print("after: test pinball %.3f kW, coverage %.3f" % evaluate(model, test_idx))
