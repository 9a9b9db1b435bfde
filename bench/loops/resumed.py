"""Saves in the middle, builds everything anew, loads, and goes on."""

import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(28)
x = torch.randn(512, 8)
y = x.cumsum(1).sin()


def built():
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)


def train(parts, steps):
    model, optimizer, schedule = parts
    for step in range(steps):
        rows = torch.randint(0, 448, (64,))
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(step, loss.item(), schedule.get_last_lr()[0])


parts = built()
train(parts, updates // 2)
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "state.pt")
    torch.save({"parts": [each.state_dict() for each in parts], "random": torch.get_rng_state()}, file)
    parts = built()
    state = torch.load(file)
for part, kept in zip(parts, state["parts"], strict=True):
    part.load_state_dict(kept)
torch.set_rng_state(state["random"])
train(parts, updates - updates // 2)
parts[0].eval()
with torch.no_grad():
    print("test", F.mse_loss(parts[0](x[448:]), y[448:]).item())
