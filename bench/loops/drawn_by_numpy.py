"""Batches, masks and mixing drawn by numpy and by Python."""

import random
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
random.seed(15)
np.random.seed(15)
torch.manual_seed(15)
x = np.random.randn(512, 24).astype(np.float32)
y = (x @ np.random.randn(24, 3)).argmax(1)
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(updates):
    rows = np.random.choice(448, 32, replace=False)
    share = np.random.beta(0.4, 0.4) if random.random() < 0.5 else 1.0
    others = np.random.permutation(rows)
    mixed = torch.from_numpy(share * x[rows] + (1 - share) * x[others]).float()
    scores = model(mixed)
    loss = share * F.cross_entropy(scores, torch.from_numpy(y[rows]))
    loss = loss + (1 - share) * F.cross_entropy(scores, torch.from_numpy(y[others]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            scores = model(torch.from_numpy(x[448:]))
        print(step, loss.item(), float(np.mean(scores.numpy().argmax(1) == y[448:])), random.random(), np.random.rand())
        model.train()
