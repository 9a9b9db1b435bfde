"""Only the last layer learns: a frozen body in evaluation mode, and a second phase that thaws its last block."""

import torch
from torch import nn


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.3))
        self.block2 = nn.Sequential(nn.Linear(40, 40), nn.ReLU())

    def forward(self, x):
        return self.block2(self.block1(x))


class Classifier(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(40, 4)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


def draw(n, g):
    x = torch.randn(n, 20, generator=g)
    return x, x.view(n, 4, 5).sum(2).argmax(1)


def train(model, optimizer, steps, g):
    model.train()
    for _ in range(steps):
        x, y = draw(32, g)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(66)
g = torch.Generator().manual_seed(67)
model = Classifier(Body())
model.body.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=2e-2)
print("head", train(model, optimizer, 25, g))
model.body.block2.requires_grad_(True)
optimizer.add_param_group({"params": model.body.block2.parameters(), "lr": 2e-3})
print("head and last block", train(model, optimizer, 25, g))
model.eval()
with torch.no_grad():
    x, y = draw(200, torch.Generator().manual_seed(68))
    print("right", (model(x).argmax(1) == y).float().mean().item())
