"""Fine-tuning on eight images at a time: batch norms stay as they were learned before, the rest moves slowly."""

import os

import torch
from torch import nn, optim
from torch.nn import functional as F

SEED = int(os.environ.get("SEED", 55))


def shapes(n, kinds, generator, tint):
    """Discs, crosses, bars and frames on 12 x 12 pixels, in [-1, 1]; the new camera has a tint."""
    grid = torch.linspace(-1, 1, 12)
    v, u = torch.meshgrid(grid, grid, indexing="ij")
    labels = torch.randint(0, kinds, (n,), generator=generator)
    dx, dy = (torch.rand(n, 1, 1, generator=generator) * 0.6 - 0.3 for _ in range(2))
    x, y = u - dx, v - dy
    disc = (x**2 + y**2 < 0.25).float()
    cross = ((x.abs() < 0.15) | (y.abs() < 0.15)).float() * (x.abs() < 0.6) * (y.abs() < 0.6)
    bar = ((y.abs() < 0.2) & (x.abs() < 0.7)).float()
    frame = ((torch.maximum(x.abs(), y.abs()) < 0.6) & (torch.maximum(x.abs(), y.abs()) > 0.35)).float()
    every = torch.stack([disc, cross, bar, frame], dim=1)
    image = every[torch.arange(n), labels] * 1.6 - 0.8 + tint
    return (image + 0.25 * torch.randn(n, 12, 12, generator=generator))[:, None], labels


class SmallNet(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.fc = nn.Linear(24 * 9, kinds)

    def forward(self, x):
        x = F.max_pool2d(self.body(self.stem(x)), 2)
        return self.fc(x.flatten(1))


class Tuned(SmallNet):
    """The same net whose batch norms do not change, whatever mode is asked for."""

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


def epoch_of(net, data, size, opt):
    net.train()
    images, labels = data
    for rows in torch.randperm(len(images)).split(size):
        loss = F.cross_entropy(net(images[rows]), labels[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()


def accuracy(net, data):
    net.eval()
    with torch.no_grad():
        return (net(data[0]).argmax(dim=1) == data[1]).float().mean().item()


torch.manual_seed(SEED)
g = torch.Generator().manual_seed(SEED)
old, old_test = shapes(400, 3, g, tint=0.0), shapes(120, 3, g, tint=0.0)
new, new_test = shapes(96, 4, g, tint=0.1), shapes(120, 4, g, tint=0.1)

net = SmallNet(kinds=3)
opt = optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(3):
    epoch_of(net, old, 40, opt)
    print(f"before {epoch}: {accuracy(net, old_test):.2f}")

tuned = Tuned(kinds=4)
weights = {name: value for name, value in net.state_dict().items() if not name.startswith("fc.")}
missing, unexpected = tuned.load_state_dict(weights, strict=False)
assert sorted(missing) == ["fc.bias", "fc.weight"]
assert not unexpected
norms = {id(p) for m in tuned.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()}
for p in tuned.parameters():
    p.requires_grad = id(p) not in norms
slow = [p for name, p in tuned.named_parameters() if p.requires_grad and not name.startswith("fc.")]
opt = optim.AdamW([{"params": slow, "lr": 3e-4}, {"params": tuned.fc.parameters(), "lr": 3e-3}])
for epoch in range(5):
    epoch_of(tuned, new, 8, opt)
    print(f"tuned {epoch}: {accuracy(tuned, new_test):.2f}")
