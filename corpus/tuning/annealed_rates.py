"""One small regression under many schedules of the rate: per step, per epoch, by hand, with restarts, on a plateau."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, PEAK = 4, 32, 0.02

torch.manual_seed(6)
x = torch.randn(416, 6)
y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.05 * torch.randn(416, 1)
train_set, val_set = TensorDataset(x[:320], y[:320]), TensorDataset(x[320:], y[320:])
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
val_loader = DataLoader(val_set, batch_size=96)
STEPS = EPOCHS * len(train_loader)


def network():
    return nn.Sequential(nn.Linear(6, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))


@torch.no_grad()
def validate(model):
    model.eval()
    total = sum(F.mse_loss(model(a), b, reduction="sum").item() for a, b in val_loader)
    return total / len(val_set)


def run(name, make, per="step", by_hand=None, feed_loss=False):
    """Trains a new network; `make` gives the scheduler, `by_hand` a rate for each step instead."""
    torch.manual_seed(6)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=1e-3)
    scheduler = make(optimizer) if make else None
    rates, step = [], 0
    for epoch in range(EPOCHS):
        model.train()
        for a, b in train_loader:
            if by_hand:
                for group in optimizer.param_groups:
                    group["lr"] = by_hand(step)
            loss = F.mse_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            step += 1
            if scheduler and per == "step":
                scheduler.step()
        error = validate(model)
        if scheduler and per == "epoch":
            if feed_loss:
                scheduler.step(error)
            else:
                scheduler.step()
    print(f"{name:12s} rate {rates[0]:.4f} to {max(rates):.4f} to {rates[-1]:.5f} error {error:.4f}")
    return error


def warm_cosine(step):
    if step < 4:
        return (step + 1) / 4
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - 4) / (STEPS - 4)))


def warm_then_linear(optimizer):
    warm = schedules.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    fall = schedules.LinearLR(optimizer, start_factor=1.0, end_factor=0.05, total_iters=STEPS - 5)
    return schedules.SequentialLR(optimizer, [warm, fall], milestones=[5])


errors = {
    "cosine": run("cosine", lambda o: schedules.CosineAnnealingLR(o, T_max=STEPS, eta_min=1e-4)),
    "one cycle": run("one cycle", lambda o: schedules.OneCycleLR(o, max_lr=PEAK, total_steps=STEPS, pct_start=0.25)),
    "by hand": run("by hand", None, by_hand=lambda step: PEAK * warm_cosine(step)),
    "two parts": run("two parts", warm_then_linear),
    "milestones": run("milestones", lambda o: schedules.MultiStepLR(o, milestones=[2, 3], gamma=0.3), per="epoch"),
}
best = min(errors, key=errors.get)
print(f"best of {len(errors)}: {best} with {errors[best]:.4f}")
