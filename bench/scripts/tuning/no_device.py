"""A tutorial's loop that names no device at all."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(192, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs, targets = torch.randn(4096, 192), torch.randint(0, 10, (4096,))
for epoch in range(2):
    for begin in range(0, 4096, 1024):
        x, y = inputs[begin : begin + 1024], targets[begin : begin + 1024]
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, loss.item(), (scores.argmax(1) == y).float().mean())
torch.save(model.state_dict(), "tutorial.pt")
