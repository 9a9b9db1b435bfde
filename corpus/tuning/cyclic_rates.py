"""Warm restarts by hand: the rate falls along a cosine and jumps up again; each valley gives an ensemble one member."""

import copy
import math

import numpy as np
import torch
from torch import nn

torch.manual_seed(3)
rng = np.random.default_rng(3)

CYCLES, EPOCHS_PER_CYCLE, BATCH = 3, 3, 32
HIGH, LOW = 0.05, 0.001


def spirals(count):
    """Three arms of a spiral, and four columns that say nothing."""
    arm = rng.integers(0, 3, count)
    r = rng.uniform(0.3, 1.6, count)
    angle = 2.2 * r + arm * 2 * np.pi / 3 + rng.normal(0, 0.2, count)
    columns = np.column_stack([r * np.cos(angle), r * np.sin(angle), rng.normal(0, 1, (count, 4))])
    return torch.tensor(columns, dtype=torch.float32), torch.tensor(arm)


x_train, y_train = spirals(768)
x_test, y_test = spirals(250)

net = nn.Sequential(
    nn.Linear(6, 48),
    nn.BatchNorm1d(48),
    nn.ReLU(),
    nn.Linear(48, 48),
    nn.ReLU(),
    nn.Dropout(0.05),
    nn.Linear(48, 3),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=HIGH, momentum=0.9, weight_decay=1e-4)
steps_per_cycle = EPOCHS_PER_CYCLE * len(x_train) // BATCH
members = []
step = 0

for cycle in range(CYCLES):
    for epoch in range(EPOCHS_PER_CYCLE):
        net.train()
        total = 0.0
        order = torch.from_numpy(rng.permutation(len(x_train)))
        for start in range(0, len(order), BATCH):
            position = (step % steps_per_cycle) / steps_per_cycle
            rate = LOW + 0.5 * (HIGH - LOW) * (1 + math.cos(math.pi * position))
            for group in optimizer.param_groups:
                group["lr"] = rate
            rows = order[start : start + BATCH]
            loss = criterion(net(x_train[rows]), y_train[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            step += 1
        print(f"cycle {cycle} epoch {epoch}: rate {rate:.4f}, loss {total / len(x_train):.4f}")

    members.append(copy.deepcopy(net).eval())
    with torch.no_grad():
        chances = torch.stack([member(x_test).softmax(dim=1) for member in members])
    alone = (chances[-1].argmax(dim=1) == y_test).float().mean().item()
    together = (chances.mean(dim=0).argmax(dim=1) == y_test).float().mean().item()
    print(f"    newest member alone {alone:.3f}, {len(members)} together {together:.3f}")
