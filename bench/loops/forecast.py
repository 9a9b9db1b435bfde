"""A GRU that forecasts the next value of a window, one window step at a time."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(23)
series = (torch.arange(900.0) / 9).sin() + 0.1 * torch.randn(900)
mean, spread = series[:700].mean(), series[:700].std()
series = (series - mean) / spread
windows = series.unfold(0, 25, 1)
training = DataLoader(TensorDataset(windows[:670, :24], windows[:670, 24]), batch_size=32, shuffle=True)
x_test, y_test = windows[700:, :24], windows[700:, 24]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(1, 24), nn.Linear(24, 1)

    def forward(self, x):
        h = x.new_zeros(len(x), 24)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t : t + 1], h)
        return self.head(h)[:, 0]


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
done = 0
while done < updates:
    for x, y in training:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == updates:
            break
    schedule.step()
    model.eval()
    with torch.no_grad():
        print(done, loss.item(), F.mse_loss(model(x_test), y_test).item())
    model.train()
