"""Looks for a learning rate first: the rate grows in every step until the loss jumps, then weights go back."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Readings(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 8, generator=g)
        self.y = self.x[:, :4].sum(1) + torch.tanh(self.x[:, 4:].sum(1)) + 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def make_net():
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))


def find_rate(net, loader, low=1e-5, high=1.0):
    """The rate at a tenth of where the loss is lowest on the way up."""
    before = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=low)
    factor = (high / low) ** (1 / len(loader))
    rates, losses, smooth = [], [], None
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.7 * smooth + 0.3 * loss.item()
        rates.append(optimizer.param_groups[0]["lr"])
        losses.append(smooth)
        if smooth > 4 * min(losses):
            break
        optimizer.param_groups[0]["lr"] *= factor
    net.load_state_dict(before)
    return rates[losses.index(min(losses))] / 10


def main():
    torch.manual_seed(90)
    loader = torch.utils.data.DataLoader(Readings(640, 1), batch_size=32, shuffle=True)
    net = make_net()
    rate = find_rate(net, loader)
    print(f"rate {rate:.2e}")
    optimizer = torch.optim.Adam(net.parameters(), lr=max(rate, 1e-3))
    for epoch in range(2):
        for x, y in loader:
            loss = F.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        test = Readings(100, 2)
        with torch.no_grad():
            print(epoch, loss.item(), F.mse_loss(net(test.x), test.y).item())


main()
