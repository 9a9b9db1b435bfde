"""Bikes hired in six quarters, a specialist for each: two quarters have no rows yet, so two specialists wait."""

import torch
from torch import nn

QUARTERS, OPEN, FEATURES = 6, 4, 5


class Hires(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.common = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU())
        self.specialists = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)) for _ in range(QUARTERS)
        )

    def forward(self, x, quarter):
        shared = self.common(x)
        out = shared.new_zeros(len(x))
        for number in quarter.unique().tolist():
            rows = quarter == number
            out[rows] = self.specialists[number](shared[rows]).squeeze(1)
        return out


def days(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=g)
    quarter = torch.randint(OPEN, (count,), generator=g)
    bends = torch.tensor([1.0, -1.0, 0.5, 2.0])
    hires = bends[quarter] * x[:, 0] + x[:, 1].abs() - 0.8 + 0.1 * torch.randn(count, generator=g)
    return x, quarter, hires


def main():
    torch.manual_seed(48)
    x, quarter, hires = days(600, seed=1)
    x_test, quarter_test, hires_test = days(150, seed=2)
    model = Hires()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(5):
        model.train()
        total = 0.0
        for part in torch.randperm(len(x)).split(24):
            loss = nn.functional.huber_loss(model(x[part], quarter[part]), hires[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(part)
        model.eval()
        with torch.no_grad():
            error = (model(x_test, quarter_test) - hires_test).abs().mean().item()
        print(f"{epoch}: loss {total / len(x):.3f}, off by {error:.3f}")


if __name__ == "__main__":
    main()
