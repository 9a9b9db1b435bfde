"""Electric load of the next hours: windows of a long series, a recurrent encoder, the hour of the year as a feature."""

import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

PAST, AHEAD, HOURS = 36, 6, 1600


def series(seed):
    g = torch.Generator().manual_seed(seed)
    hour = torch.arange(HOURS)
    day, week = torch.sin(2 * math.pi * hour / 24), torch.cos(2 * math.pi * hour / 168)
    return 50 + 12 * day + 6 * week + 1.5 * torch.randn(HOURS, generator=g)


class Windows(Dataset):
    def __init__(self, load, first, last, stride):
        self.load = load
        self.starts = range(first, last - PAST - AHEAD, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        start = self.starts[i]
        window = (self.load[start : start + PAST + AHEAD] - 50) / 10
        hours = torch.arange(start, start + PAST)
        return window[:PAST], hours, window[PAST:]


class Forecaster(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.rates = nn.Buffer(2 * math.pi / torch.tensor([24.0, 168.0]))
        self.lstm = nn.LSTM(5, width, batch_first=True)
        self.attend = nn.Linear(width, 1)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(2 * width, AHEAD)

    def calendar(self, hours):
        angle = hours[..., None].float() * self.rates
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    def forward(self, past, hours):
        x = torch.cat([past[..., None], self.calendar(hours)], dim=-1)
        states, _ = self.lstm(x)
        weights = self.attend(states).softmax(dim=1)
        summary = (weights * states).sum(dim=1)
        return self.out(self.drop(torch.cat([summary, states[:, -1]], dim=-1)))


def validate(net, loader, criterion):
    net.eval()
    total = windows = 0
    with torch.no_grad():
        for past, hours, future in loader:
            loss = criterion(net(past, hours), future)
            total += loss.item() * len(past)
            windows += len(past)
    return total / windows


def main():
    torch.manual_seed(110)
    load = series(seed=1)
    train_loader = DataLoader(Windows(load, 0, 1200, stride=4), batch_size=32, shuffle=True)
    valid_loader = DataLoader(Windows(load, 1200, HOURS, stride=8), batch_size=32)
    net = Forecaster()
    criterion = nn.HuberLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    history = []
    for epoch in range(3):
        net.train()
        for past, hours, future in train_loader:
            forecast = net(past, hours)
            loss = criterion(forecast, future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        valid = validate(net, valid_loader, criterion)
        plateau.step(valid)
        history.append(valid)
        print(f"{epoch}: train {loss.item():.4f} valid {valid:.4f}")
    torch.save(net.state_dict(), "forecaster.pt")


if __name__ == "__main__":
    main()
