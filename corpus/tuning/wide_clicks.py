"""Clicks from users, items and numbers: embeddings beside an MLP, binary cross-entropy, two groups of parameters."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(13)
USERS, ITEMS, NUMBERS = 40, 60, 5


class Clicks(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        taste = np.random.default_rng(0).normal(size=(USERS, 3)), np.random.default_rng(1).normal(size=(ITEMS, 3))
        self.users, self.items = rng.integers(0, USERS, n), rng.integers(0, ITEMS, n)
        self.numbers = rng.normal(size=(n, NUMBERS)).astype(np.float32)
        score = (taste[0][self.users] * taste[1][self.items]).sum(1) + self.numbers[:, 0]
        self.clicked = (score > 0).astype(np.float32)

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, i):
        return self.users[i], self.items[i], self.numbers[i], self.clicked[i]


class WideDeep(nn.Module):
    def __init__(self, dim=8, width=24):
        super().__init__()
        self.user = nn.Embedding(USERS, dim)
        self.item = nn.Embedding(ITEMS, dim)
        self.wide = nn.Linear(NUMBERS, 1)
        self.deep = nn.Sequential(
            nn.Linear(2 * dim + NUMBERS, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1)
        )

    def forward(self, user, item, numbers):
        features = torch.cat([self.user(user), self.item(item), numbers], dim=1)
        return (self.deep(features) + self.wide(numbers)).squeeze(1)


train_loader = DataLoader(Clicks(320, 2), batch_size=32, shuffle=True)
test_loader = DataLoader(Clicks(64, 3), batch_size=64)
model = WideDeep()
tables = [*model.user.parameters(), *model.item.parameters()]
dense = [*model.wide.parameters(), *model.deep.parameters()]
optimizer = torch.optim.Adagrad([{"params": tables, "lr": 0.1}, {"params": dense, "lr": 0.02}])

for epoch in range(2):
    model.train()
    for user, item, numbers, clicked in train_loader:
        logits = model(user, item, numbers)
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        for user, item, numbers, clicked in test_loader:
            guess = torch.sigmoid(model(user, item, numbers)) > 0.5
            print(f"epoch {epoch} loss {loss.item():.3f} accuracy {(guess == clicked.bool()).float().mean():.3f}")
