"""Trains a text classifier on one task, freezes it, adapts it to another with low-rank pairs, and merges them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)


class LowRank(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        for parameter in self.base.parameters():
            parameter.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.b @ self.a
        return self.base


class Network(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(20, width), nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.first(x)))))


def task(seed, rows=600):
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 20, generator=drawn)
    return x, (x @ torch.randn(20, 3, generator=drawn)).argmax(1)


def train(model, parameters, x, y, epochs):
    optimizer = torch.optim.Adam(parameters, 3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


first_x, first_y = task(1)
second_x, second_y = task(2)
model = Network()
train(model, list(model.parameters()), first_x[:500], first_y[:500], 5)
print("before", accuracy(model, first_x[500:], first_y[500:]))
model.requires_grad_(False)
model.first, model.second = LowRank(model.first), LowRank(model.second)
model.head = nn.Linear(48, 3)
train(model, [each for each in model.parameters() if each.requires_grad], second_x[:500], second_y[:500], 6)
print("adapted", accuracy(model, second_x[500:], second_y[500:]))
model.first, model.second = model.first.merged(), model.second.merged()
print("merged", accuracy(model, second_x[500:], second_y[500:]))
