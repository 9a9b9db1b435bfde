"""A normalising flow for positions of two flocks of birds: coupling layers, trained by the exact likelihood."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader


def flocks(count, seed):
    """Two crescents that reach into each other, in two dimensions, and a height that depends on them."""
    g = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(count, generator=g)
    upper = torch.randint(0, 2, (count,), generator=g).float()
    x = (2 * upper - 1) * angle.cos() + 0.5 - upper
    y = (2 * upper - 1) * angle.sin() + 0.25 - 0.5 * upper
    z = torch.sin(2 * x) + 0.2 * torch.randn(count, generator=g)
    points = torch.stack([x, y, z], dim=1) + 0.1 * torch.randn(count, 3, generator=g)
    return points


class Coupling(nn.Module):
    """Scales and moves the part that is not in the mask, by what is in the mask."""

    def __init__(self, mask, width):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 6)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def parts(self, kept):
        scale, shift = self.out(self.net(kept)).chunk(2, dim=1)
        free = 1 - self.mask
        return 1.5 * torch.tanh(scale) * free, shift * free

    def forward(self, x):
        scale, shift = self.parts(x * self.mask)
        return x * scale.exp() + shift, scale.sum(dim=1)

    def inverse(self, z):
        scale, shift = self.parts(z * self.mask)
        return (z - shift) * (-scale).exp()


class Flow(nn.Module):
    def __init__(self, layers=6, width=32):
        super().__init__()
        masks = [torch.eye(3)[i % 3] if i % 2 else 1 - torch.eye(3)[i % 3] for i in range(layers)]
        self.layers = nn.ModuleList(Coupling(mask, width) for mask in masks)

    def log_prob(self, x):
        volume = torch.zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            volume = volume + change
        return -0.5 * (x.square() + math.log(2 * math.pi)).sum(dim=1) + volume

    forward = log_prob

    @torch.no_grad()
    def sample(self, count):
        z = torch.randn(count, 3)
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def held_back(flow, loader):
    """Mean of the negative log likelihood, in nats."""
    flow.eval()
    with torch.no_grad():
        values = torch.cat([-flow(batch) for batch in loader])
    flow.train()
    return values.mean().item()


def main():
    torch.manual_seed(26)
    points, later = flocks(1280, seed=1), flocks(250, seed=2)
    mean, std = points.mean(dim=0), points.std(dim=0)
    train = DataLoader((points - mean) / std, batch_size=64, shuffle=True)
    test = DataLoader((later - mean) / std, batch_size=100)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 6], gamma=0.4)
    print(f"before: {held_back(flow, test):.3f}")
    for epoch in range(7):
        total = 0.0
        for batch in train:
            loss = -flow(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(batch)
        scheduler.step()
        print(f"epoch {epoch}: {total / len(points):.3f}, held back {held_back(flow, test):.3f}")
    drawn = flow.sample(500) * std + mean
    print("drawn:", [round(v, 2) for v in drawn.mean(dim=0).tolist()], "seen:", [round(v, 2) for v in mean.tolist()])


if __name__ == "__main__":
    main()
