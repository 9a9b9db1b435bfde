"""Layers of a small network thawed one after another, from the last to the first; each joins the optimizer in turn."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Plan:
    epochs: int = 6
    batch: int = 30
    lr: float = 4e-3
    slower: float = 0.5
    every: int = 2


class Tower(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(10, width), nn.Linear(width, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        for step in self.steps:
            x = nn.functional.gelu(step(x))
        return self.out(x)


def points(count, seed, shift):
    centres = torch.randn(4, 10, generator=torch.Generator().manual_seed(77))
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(4, (count,), generator=g)
    return centres.roll(shift, 0)[kind] + torch.randn(count, 10, generator=g), kind


def epoch(model, optimizer, x, y, size):
    total = 0.0
    for rows in torch.randperm(len(x)).split(size):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(x)


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


def finetune(plan):
    torch.manual_seed(44)
    model = Tower()
    old = torch.optim.Adam(model.parameters(), lr=4e-3)
    x, y = points(300, seed=1, shift=0)
    print(f"old task: {epoch(model, old, x, y, 30):.3f}")
    model.requires_grad_(False)
    model.out = nn.Linear(model.out.in_features, 4)
    optimizer = torch.optim.Adam(model.out.parameters(), lr=plan.lr)
    x, y = points(300, seed=2, shift=1)
    x_new, y_new = points(80, seed=3, shift=1)
    asleep = list(model.steps)
    for number in range(plan.epochs):
        if number and number % plan.every == 0 and asleep:
            layer = asleep.pop().requires_grad_(True)
            depth = len(model.steps) - len(asleep)
            optimizer.add_param_group({"params": layer.parameters(), "lr": plan.lr * plan.slower**depth})
        loss = epoch(model, optimizer, x, y, plan.batch)
        print(f"{number}: {loss:.3f} {accuracy(model, x_new, y_new):.1%}, {len(asleep)} asleep")
    torch.save(model.state_dict(), "tower.pt")


if __name__ == "__main__":
    finetune(Plan())
