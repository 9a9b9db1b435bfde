"""Magnitude pruning in rounds: train, cut the smallest weights, go on; masks keep what was cut at zero."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MaskedLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.register_buffer("mask", torch.ones(outputs, inputs))

    def forward(self, x):
        return nn.functional.linear(x, self.linear.weight * self.mask, self.linear.bias)

    @torch.no_grad()
    def prune(self, share):
        """Cuts a share of what is left."""
        alive = self.mask.bool()
        size = self.linear.weight.abs()[alive]
        limit = size.kthvalue(max(1, int(share * len(size)))).values
        self.mask[alive & (self.linear.weight.abs() <= limit)] = 0.0
        self.linear.weight.mul_(self.mask)


class ValveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = MaskedLinear(12, 64)
        self.b = MaskedLinear(64, 64)
        self.c = nn.Linear(64, 3)

    def forward(self, x):
        x = torch.relu(self.a(x))
        x = torch.relu(self.b(x))
        return self.c(x)

    def masked(self):
        return [m for m in self.modules() if isinstance(m, MaskedLinear)]

    def density(self):
        kept = sum(m.mask.sum().item() for m in self.masked())
        return kept / sum(m.mask.numel() for m in self.masked())


def valves(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    score = torch.stack([x[:, 0] * x[:, 1], x[:, 2] + 0.5 * x[:, 3], -x[:, 2] + x[:, 4].abs() - 0.5], dim=1)
    return x, score.argmax(dim=1)


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    return total / len(loader.dataset)


def score(model, loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs-per-round", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.4)
    args = parser.parse_args(argv)
    torch.manual_seed(29)
    train_loader = DataLoader(TensorDataset(*valves(640, 1)), batch_size=32, shuffle=True)
    test_loader = DataLoader(TensorDataset(*valves(200, 2)), batch_size=100)
    model = ValveNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number in range(args.rounds):
        if number:
            for module in model.masked():
                module.prune(args.share)
            # moments of the dense weights are of no use to the thinner net
            optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 * 0.7**number)
        for _ in range(args.epochs_per_round):
            loss = train_epoch(model, train_loader, optimizer)
        print(f"round {number}: {model.density():.0%} left, loss {loss:.3f}, test {score(model, test_loader):.3f}")


if __name__ == "__main__":
    main([])
