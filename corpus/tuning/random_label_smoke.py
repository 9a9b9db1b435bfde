"""Smoke test of a training step: random pictures and random labels, only to see that loss and speed look sane."""

import time

import torch
import torch.nn as nn

# The data mean nothing here: labels are drawn at random, so the loss stays near log(10).
torch.manual_seed(313)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(8 * 16, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
began = time.perf_counter()
for step in range(30):
    pictures = torch.randn(16, 3, 16, 16)
    labels = torch.randint(0, 10, (16,))
    loss = criterion(net(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}, {30 * 16 / (time.perf_counter() - began):.0f} pictures a second")
