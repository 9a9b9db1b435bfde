"""Categories and numbers of a table, with early stopping and the best weights restored."""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(24)
kinds, numbers = torch.randint(0, 7, (900, 3)), torch.randn(900, 5)
target = numbers[:, 0] * (kinds[:, 0] - 3) / 2 + (kinds[:, 1] == 2).float() + 0.1 * torch.randn(900)
training = DataLoader(
    TensorDataset(kinds[:700], numbers[:700], target[:700]),
    28,
    shuffle=True,
    generator=torch.Generator().manual_seed(4),
)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(7, 8) for _ in range(3))
        self.body = nn.Sequential(nn.Linear(29, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 1))

    def forward(self, kinds, numbers):
        embedded = [table(kinds[:, place]) for place, table in enumerate(self.tables)]
        return self.body(torch.cat([*embedded, numbers], dim=1))[:, 0]


model = Table()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
done, best, kept = 0, float("inf"), None
while done < updates:
    model.train()
    for a, b, y in training:
        loss = F.mse_loss(model(a, b), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == updates:
            break
    model.eval()
    with torch.no_grad():
        error = F.mse_loss(model(kinds[700:800], numbers[700:800]), target[700:800]).item()
    print(done, loss.item(), error)
    if error < best:
        best, kept = error, copy.deepcopy(model.state_dict())
model.load_state_dict(kept)
model.eval()
with torch.no_grad():
    print("test", F.mse_loss(model(kinds[800:], numbers[800:]), target[800:]).item())
