"""Readings of an old and a new instrument: features that tell the class and, by a reversed gradient, not the source."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Reverse(torch.autograd.Function):
    """Nothing on the way there; the gradient with another sign on the way back."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Reader(nn.Module):
    def __init__(self, inputs=8, width=24, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.kind = nn.Linear(width, classes)
        self.source = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, strength=0.0):
        features = self.features(x)
        return self.kind(features), self.source(Reverse.apply(features, strength)).squeeze(1)


def readings(count, new, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (count,), generator=g)
    x = torch.randn(count, 8, generator=g) * 0.8
    x[:, 0] += 1.5 * (kind - 1)
    x[:, 1] += 1.5 * (kind == 1)
    if new:
        x[:, 2:5] += 1.2
        x[:, 0] += 0.4
    return x, kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(82)
    x_old, kind_old = readings(480, new=False, seed=1)
    x_new, _ = readings(480, new=True, seed=2)
    x_test, kind_test = readings(150, new=True, seed=3)
    net = Reader()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.rate)
    steps = args.epochs * len(x_old) // 24
    done = 0
    for epoch in range(args.epochs):
        net.train()
        pairs = zip(torch.randperm(480).split(24), torch.randperm(480).split(24), strict=True)
        for a, b in pairs:
            strength = 2 / (1 + math.exp(-10 * done / steps)) - 1
            kind, source_old = net(x_old[a], strength)
            _, source_new = net(x_new[b], strength)
            told = F.binary_cross_entropy_with_logits(source_old, torch.zeros(len(a)))
            told = told + F.binary_cross_entropy_with_logits(source_new, torch.ones(len(b)))
            loss = F.cross_entropy(kind, kind_old[a]) + 0.3 * told
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
        net.eval()
        with torch.no_grad():
            right = (net(x_test)[0].argmax(dim=1) == kind_test).float().mean().item()
        print(
            f"{epoch}: loss {loss.item():.3f}, sources told apart at {told.item() / 2:.3f}, new ones right {right:.3f}"
        )


if __name__ == "__main__":
    main()
