"""Trains a classifier of tabular rows, with an embedding per categorical column, and keeps the best weights.

Needs numpy.
"""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEED = 11
CARDINALITIES = [200, 31, 12, 7, 1000]
N_NUMERIC = 24
BATCH = 512
EPOCHS = 3
PATIENCE = 2

np.random.seed(SEED)
torch.manual_seed(SEED)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_table(rows):
    numeric = np.random.randn(rows, N_NUMERIC).astype("float32")
    categorical = np.stack([np.random.randint(0, c, rows) for c in CARDINALITIES], axis=1)
    score = numeric[:, :4].sum(1) + 0.3 * (categorical[:, 1] % 3) - 0.5
    target = (score + 0.5 * np.random.randn(rows) > 0).astype("float32")
    return numeric, categorical, target


class TabularNet(nn.Module):
    def __init__(self, cardinalities, n_numeric, hidden=(512, 256), p=0.1):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(c, min(50, (c + 1) // 2)) for c in cardinalities])
        self.bn_numeric = nn.BatchNorm1d(n_numeric)
        width = n_numeric + sum(e.embedding_dim for e in self.embeds)
        layers = []
        for h in hidden:
            layers += [nn.Linear(width, h), nn.ReLU(inplace=True), nn.BatchNorm1d(h), nn.Dropout(p)]
            width = h
        layers.append(nn.Linear(width, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, numeric, categorical):
        embedded = [e(categorical[:, i]) for i, e in enumerate(self.embeds)]
        x = torch.cat([*embedded, self.bn_numeric(numeric)], dim=1)
        return self.layers(x).squeeze(1)


numeric, categorical, target = make_table(4096)
cut = int(len(target) * 0.75)
mean, std = numeric[:cut].mean(0), numeric[:cut].std(0)
numeric = (numeric - mean) / std

# The whole table lives on the device: it is small.
num = torch.from_numpy(numeric).to(device)
cat = torch.from_numpy(categorical).to(device)
tgt = torch.from_numpy(target).to(device)

model = TabularNet(CARDINALITIES, N_NUMERIC).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5, foreach=True)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)

best_loss, best_state, bad = float("inf"), None, 0
for epoch in range(EPOCHS):
    model.train()
    order = torch.randperm(cut, device=device)
    running = 0.0
    for start in range(0, cut, BATCH):
        rows = order[start : start + BATCH]
        optimizer.zero_grad()
        logits = model(num[rows], cat[rows])
        loss = F.binary_cross_entropy_with_logits(logits, tgt[rows])
        loss.backward()
        optimizer.step()
        running += loss.item() * len(rows)

    model.eval()
    with torch.no_grad():
        val_logits = model(num[cut:], cat[cut:])
        val_loss = F.binary_cross_entropy_with_logits(val_logits, tgt[cut:]).item()
        accuracy = ((val_logits > 0).float() == tgt[cut:]).float().mean().item()
    scheduler.step(val_loss)
    print(f"epoch {epoch}: train {running / cut:.4f} valid {val_loss:.4f} accuracy {accuracy:.3f}")

    if val_loss < best_loss:
        best_loss, best_state, bad = val_loss, copy.deepcopy(model.state_dict()), 0
    else:
        bad += 1
        if bad >= PATIENCE:
            print("early stop")
            break

if best_state is not None:
    model.load_state_dict(best_state)
torch.save({"model": model.state_dict(), "mean": mean, "std": std}, "tabular_best.pt")
