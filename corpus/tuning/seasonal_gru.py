"""Tomorrow's load of a power grid from its last days: a GRU with attention over its past, Huber loss, SWA."""

import numpy as np
import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

LOOKBACK = 24


def load_curve(days, rng):
    t = np.arange(days * 8)
    wave = np.sin(2 * np.pi * t / 8) + 0.5 * np.sin(2 * np.pi * t / 56) + 0.1 * rng.standard_normal(len(t))
    return (500 + 120 * wave).astype(np.float32)


class Windows:
    def __init__(self, series, mean, scale):
        self.series = torch.from_numpy((series - mean) / scale)

    def __len__(self):
        return len(self.series) - LOOKBACK

    def __getitem__(self, i):
        past = self.series[i : i + LOOKBACK]
        return past.unsqueeze(-1), self.series[i + LOOKBACK]


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.query = nn.Parameter(torch.randn(hidden) / hidden**0.5)
        self.project = nn.Linear(2 * hidden, 1)

    def forward(self, past):
        states, _ = self.rnn(past)
        weight = torch.softmax(states @ self.query, dim=1)
        context = (weight.unsqueeze(-1) * states).sum(dim=1)
        return self.project(torch.cat([context, states[:, -1]], dim=-1)).squeeze(-1)


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.bad, self.best = patience, 0, float("inf")

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad > self.patience


def mean_absolute_error(model, loader, scale):
    model.eval()
    errors = []
    with torch.no_grad():
        for past, target in loader:
            errors.append(((model(past) - target).abs() * scale).flatten())
    return torch.cat(errors).mean().item()


torch.manual_seed(6)
np_rng = np.random.default_rng(6)
series = load_curve(70, np_rng)
cut = 400
mean, scale = float(series[:cut].mean()), float(series[:cut].std())
train_loader = DataLoader(Windows(series[:cut], mean, scale), batch_size=20, shuffle=True, drop_last=True)
val_loader = DataLoader(Windows(series[cut:], mean, scale), batch_size=40)
model = Forecaster()
huber = nn.HuberLoss(delta=1.0)
opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[2], gamma=0.5)
swa = AveragedModel(model)
stop = EarlyStop(patience=2)
for epoch in range(3):
    model.train()
    total, seen = 0.0, 0
    for past, target in train_loader:
        forecast = model(past)
        loss = huber(forecast, target)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item() * len(target)
        seen += len(target)
    sched.step()
    if epoch >= 1:
        swa.update_parameters(model)
    mae = mean_absolute_error(model, val_loader, scale)
    print(f"{epoch} huber {total / seen:.4f} MAE {mae:.1f} MW")
    if stop(mae):
        break
print("averaged weights:", mean_absolute_error(swa, val_loader, scale))
