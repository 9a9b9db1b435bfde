"""Forecasts a noisy wave with a GRU; windows of a series, early stopping on validation."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(17)
WINDOW = 20


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, 1)

    def forward(self, series):
        states, _ = self.gru(series)
        last = self.norm(states[:, -1])
        return self.out(self.drop(last)).squeeze(-1)


def windows(n=400):
    generator = torch.Generator().manual_seed(3)
    time = torch.arange(n).float()
    wave = torch.sin(time / 5) + 0.5 * torch.cos(time / 11) + 0.1 * torch.randn(n, generator=generator)
    slope = torch.cat([torch.zeros(1), wave.diff()])
    both = torch.stack([wave, slope], dim=1)
    x = torch.stack([both[i : i + WINDOW] for i in range(n - WINDOW)])
    return TensorDataset(x, wave[WINDOW:])


series = windows()
train = Subset(series, range(280))
valid = Subset(series, range(300, 380))
loader = DataLoader(train, batch_size=28, shuffle=True)

net = Forecaster()
criterion = nn.MSELoss()
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
best_loss, best_state, patience = float("inf"), None, 2

for epoch in range(3):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        pred = net(x)
        loss = criterion(pred, y)
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        opt.step()

    net.eval()
    with torch.no_grad():
        valid_loss, count = 0.0, 0
        for x, y in DataLoader(valid, batch_size=40):
            valid_loss += criterion(net(x), y).item() * len(y)
            count += len(y)
    valid_loss /= count
    print(f"epoch {epoch} valid {valid_loss:.4f}")
    if valid_loss < best_loss:
        best_loss, best_state = valid_loss, copy.deepcopy(net.state_dict())
    else:
        patience -= 1
        if patience == 0:
            break
net.load_state_dict(best_state)
