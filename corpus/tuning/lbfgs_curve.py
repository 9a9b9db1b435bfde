"""Fits a curve with L-BFGS: a closure that clears and computes gradients many times in one step."""

import torch
from torch import nn

torch.manual_seed(22)
x = torch.linspace(-2, 2, 80).unsqueeze(1)
y = torch.sin(2 * x)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)


def closure():
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    return loss


for _ in range(6):
    value = optimizer.step(closure)
print(value.item())
