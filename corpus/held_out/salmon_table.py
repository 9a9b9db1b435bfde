"""Which river a salmon was born in, from a table of measurements, with its weight as a second target."""

import csv
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

SEED = 31
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

RIVERS = ["Alta", "Namsen", "Tana", "Orkla"]
COLUMNS = ["length", "girth", "rings", "fat", "gill", "strontium", "barium", "day"]
EPOCHS = 6
BATCH = 32

# ---- the table: one river after the other, as the stations sent it in
rng = np.random.default_rng(SEED)
river_means = rng.normal(0.0, 0.9, size=(len(RIVERS), len(COLUMNS)))
typical = np.array([78.0, 40.0, 14.0, 11.0, 6.0, 900.0, 0.8, 190.0])
spread = np.array([9.0, 5.0, 3.0, 2.5, 0.8, 160.0, 0.2, 21.0])
with open("salmon.csv", "w", newline="") as f:
    writer = csv.writer(f)
    writer.writerow([*COLUMNS, "river", "kg"])
    for number, name in enumerate(RIVERS):
        for _ in range(200):
            z = river_means[number] + rng.normal(0.0, 0.8, size=len(COLUMNS))
            kg = math.exp(1.6 + 0.30 * z[0] + 0.15 * z[1] + 0.05 * rng.normal())
            writer.writerow([*(f"{v:.3f}" for v in typical + spread * z), name, f"{kg:.2f}"])

with open("salmon.csv", newline="") as f:
    rows = list(csv.DictReader(f))
table = np.array([[float(row[c]) for c in COLUMNS] for row in rows], dtype=np.float32)
river = np.array([RIVERS.index(row["river"]) for row in rows])
kilos = np.array([float(row["kg"]) for row in rows], dtype=np.float32)

# ---- split; the statistics come from the training fish alone
order = rng.permutation(len(rows))
train_rows, valid_rows = np.sort(order[:640]), np.sort(order[640:])
mean, std = table[train_rows].mean(axis=0), table[train_rows].std(axis=0)
table = (table - mean) / std
kilos = (kilos - kilos[train_rows].mean()) / kilos[train_rows].std()


class Fish(Dataset):
    """Rows of the table; for training, the instruments' error is drawn anew at every visit."""

    def __init__(self, table, river, kilos, jitter=0.0):
        self.table = torch.from_numpy(table)
        self.river = torch.from_numpy(river)
        self.kilos = torch.from_numpy(kilos)
        self.jitter = jitter

    def __len__(self):
        return len(self.river)

    def __getitem__(self, i):
        row = self.table[i]
        if self.jitter:
            row = row + self.jitter * torch.randn(len(row))
        return row, self.river[i], self.kilos[i]


train_set = Subset(Fish(table, river, kilos, jitter=0.1), train_rows.tolist())
valid_set = Subset(Fish(table, river, kilos), valid_rows.tolist())
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
valid_loader = DataLoader(valid_set, batch_size=48)


class SalmonNet(nn.Module):
    def __init__(self, columns, width, depth, rivers):
        super().__init__()
        self.inlet = nn.Sequential(nn.Linear(columns, width), nn.BatchNorm1d(width), nn.ReLU())
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.drop = nn.Dropout(0.1)
        self.to_river = nn.Linear(width, rivers)
        self.to_kilos = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inlet(x)
        for block in self.blocks:
            h = h + self.drop(F.relu(block(h)))
        return self.to_river(h), self.to_kilos(h).squeeze(1)


model = SalmonNet(len(COLUMNS), 48, 3, len(RIVERS))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(train_loader))
print(f"{len(train_set)} fish to train on, {len(valid_set)} to test")

best_accuracy, best_state = -1.0, None
for epoch in range(EPOCHS):
    model.train()
    total, seen = 0.0, 0
    for x, y, kg in train_loader:
        optimizer.zero_grad()
        logits, weight = model(x)
        river_loss = F.cross_entropy(logits, y)
        weight_loss = ((weight - kg) ** 2).mean()
        loss = river_loss + 0.3 * weight_loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(y)
        seen += len(y)

    model.eval()
    right, squared, count = 0, 0.0, 0
    with torch.no_grad():
        for x, y, kg in valid_loader:
            logits, weight = model(x)
            right += (logits.argmax(dim=1) == y).sum().item()
            squared += ((weight - kg) ** 2).sum().item()
            count += len(y)
    accuracy = right / count
    if accuracy > best_accuracy:
        best_accuracy = accuracy
        best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    rate = scheduler.get_last_lr()[0]
    mse = squared / count
    print(f"epoch {epoch + 1}: loss {total / seen:.4f} accuracy {accuracy:.3f} mse {mse:.3f} rate {rate:.2e}")

torch.save({"model": best_state, "mean": mean, "std": std, "rivers": RIVERS}, "salmon.pt")
print(f"best accuracy {best_accuracy:.3f}")
