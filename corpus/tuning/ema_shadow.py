"""A shadow of the weights, averaged over the steps, stands in for the network whenever it is measured."""

import contextlib

import torch
from torch import nn


class Shadow:
    def __init__(self, model, keep):
        self.keep, self.count = keep, 0
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, model):
        self.count += 1
        keep = min(self.keep, (1 + self.count) / (10 + self.count))
        for name, p in model.named_parameters():
            self.values[name].lerp_(p, 1 - keep)

    @contextlib.contextmanager
    def standing_in(self, model):
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(self.values[name])
        try:
            yield model
        finally:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.copy_(own[name])


def spirals(count, seed):
    g = torch.Generator().manual_seed(seed)
    arm = torch.randint(2, (count,), generator=g)
    radius = 0.3 + 2 * torch.rand(count, generator=g)
    angle = 2 * radius + 3.1416 * arm + 0.15 * torch.randn(count, generator=g)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm.float()


torch.manual_seed(18)
x_train, y_train = spirals(512, seed=1)
x_test, y_test = spirals(128, seed=2)
model = nn.Sequential(
    nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Dropout(0.05), nn.Linear(48, 1), nn.Flatten(0)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
shadow = Shadow(model, keep=0.98)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(8):
    model.train()
    for rows in torch.randperm(512).split(32):
        loss = criterion(model(x_train[rows]), y_train[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shadow.follow(model)
    model.eval()
    with shadow.standing_in(model), torch.no_grad():
        right = ((model(x_test) > 0) == y_test.bool()).float().mean().item()
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}, shadow right {right:.1%}")
torch.save(shadow.values, "shadow.pt")
