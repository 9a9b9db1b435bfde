import math

import torch
from torch import nn

torch.manual_seed(0)
DIM, HEADS, LENGTH, BATCH = 16, 4, 9, 5


class Positions(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        places = torch.arange(length).unsqueeze(1)
        rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(1000.0) / dim))
        table = torch.zeros(length, dim)
        table[:, 0::2] = torch.sin(places * rates)
        table[:, 1::2] = torch.cos(places * rates)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class Forecaster(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.lift = nn.Linear(channels, DIM)
        self.positions = Positions(DIM, LENGTH)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.readout = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, channels))

    def forward(self, series, mask=None):
        x = self.positions(self.lift(series))
        x = self.encoder(x, src_key_padding_mask=mask)
        return self.readout(x)


def waves():
    phase = torch.rand(BATCH, 1, 3) * 6.28
    time = torch.arange(LENGTH + 1).view(1, -1, 1) * 0.3
    return torch.sin(time + phase)


def step(model, optimizer, series):
    inputs, targets = series[:, :-1], series[:, 1:]
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    prediction = model(inputs, mask)
    error = (prediction - targets) ** 2
    loss = error.mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


model = Forecaster()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(3):
    loss = step(model, optimizer, waves())
    print(number, float(loss))
