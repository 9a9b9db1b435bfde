"""Tons of wheat from soil and weather: rows of numpy indexed by hand, a small MLP, best weights by validation."""

import copy

import numpy as np
import torch
from torch import nn

SEED, FIELDS, BATCH, EPOCHS = 31, 520, 24, 8
rng = np.random.default_rng(SEED)
torch.manual_seed(SEED)

# the table, one row for each field
acid = rng.normal(6.5, 0.6, FIELDS)
rain = rng.gamma(8.0, 60.0, FIELDS)
warmth = rng.normal(1900.0, 180.0, FIELDS)
nitrogen = rng.uniform(40.0, 220.0, FIELDS)
sort = rng.integers(0, 4, FIELDS)
hectares = rng.uniform(1.0, 5.0, FIELDS)
tons = 5 - 0.8 * (acid - 6.5) ** 2 + 0.003 * rain + 0.012 * nitrogen + 0.5 * sort + rng.normal(0, 0.2, FIELDS)
tons += 0.000004 * rain * (warmth - 1900)

order = rng.permutation(FIELDS)
train_ids, valid_ids, test_ids = order[:360], order[360:440], order[440:]

numbers = np.column_stack([acid, rain, warmth, nitrogen])
centre, spread = numbers[train_ids].mean(axis=0), numbers[train_ids].std(axis=0)
x = torch.tensor((numbers - centre) / spread, dtype=torch.float32)
sort = torch.from_numpy(sort)
mean_tons, std_tons = tons[train_ids].mean(), tons[train_ids].std()
y = torch.tensor((tons - mean_tons) / std_tons, dtype=torch.float32)
weight = torch.tensor(hectares / hectares[train_ids].mean(), dtype=torch.float32)


class YieldNet(nn.Module):
    def __init__(self, width=40, act=nn.GELU):
        super().__init__()
        self.sorts = nn.Embedding(4, 6)
        self.enter = nn.Sequential(nn.Linear(10, width), act())
        self.middle = nn.Sequential(nn.Linear(width, width), act())
        self.drop = nn.Dropout(0.1)
        self.tons = nn.Linear(width, 2)

    def forward(self, x, sort):
        x = torch.cat([x, self.sorts(sort)], dim=1)
        x = self.enter(x)
        x = self.middle(self.drop(x))
        return self.tons(x).mean(dim=1)


def error(ids):
    """Mean absolute error in tons, the model's mode as it was before."""
    was = model.training
    model.eval()
    with torch.no_grad():
        guess = torch.cat([model(x[part], sort[part]) for part in np.array_split(ids, 3)])
    model.train(was)
    return (guess - y[ids]).abs().mean().item() * std_tons


model = YieldNet()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
best, best_error = None, float("inf")

model.train()
for epoch in range(EPOCHS):
    shuffled = rng.permutation(train_ids)
    losses = []
    for start in range(0, len(shuffled), BATCH):
        ids = shuffled[start : start + BATCH]
        guess = model(x[ids], sort[ids])
        each = nn.functional.smooth_l1_loss(guess, y[ids], reduction="none")
        loss = (weight[ids] * each).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    now = error(valid_ids)
    plateau.step(now)
    if now < best_error:
        best_error = now
        best = copy.deepcopy(model.state_dict())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}, validation {now:.3f} t")

model.load_state_dict(best)
print(f"test: {error(test_ids):.3f} t")
