"""Three quantiles of taxi fares: pinball loss, accumulation with a short last group, warm-up and cosine."""

import argparse
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--micro", type=int, default=24)
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--warmup", type=int, default=6)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args([])


def rides(n, rng):
    distance = rng.gamma(2.0, 2.5, n)
    hour = rng.integers(0, 24, n)
    rain = (rng.random(n) < 0.2).astype(np.float64)
    spread = 0.5 + 0.25 * distance + rain
    fare = 3.5 + 1.9 * distance + 2.0 * ((hour > 16) & (hour < 20)) + rng.normal(0, 1, n) * spread
    features = np.column_stack([np.log1p(distance), np.sin(hour / 24 * 2 * np.pi), np.cos(hour / 24 * 2 * np.pi), rain])
    return features.astype(np.float32), fare.astype(np.float32)


class QuantileNet(nn.Module):
    """The quantiles do not cross: the upper ones are sums of positive steps."""

    def __init__(self, inputs, quantiles):
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles))
        self.body = nn.Sequential(nn.Linear(inputs, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.head = nn.Linear(48, len(quantiles))

    def forward(self, x):
        out = self.head(self.body(x))
        steps = torch.cat([out[:, :1], F.softplus(out[:, 1:])], dim=1)
        return steps.cumsum(dim=1)

    def pinball(self, x, y):
        error = y[:, None] - self(x)
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean(dim=1)


def main():
    args = parse()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    x, y = rides(1000, np.random.default_rng(args.seed))
    order = np.random.permutation(len(x))
    cut = int(0.8 * len(x))
    train, test = order[:cut], order[cut:]
    mu, sd = x[train].mean(0), x[train].std(0)
    y_mu, y_sd = y[train].mean(), y[train].std()
    x, y = torch.from_numpy((x - mu) / sd), torch.from_numpy((y - y_mu) / y_sd)

    model = QuantileNet(x.shape[1], [0.1, 0.5, 0.9])
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    group = args.micro * args.accumulate
    steps = args.epochs * math.ceil(len(train) / group)

    def rate(step):
        if step < args.warmup:
            return (step + 1) / args.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / (steps - args.warmup)))

    sched = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    for epoch in range(args.epochs):
        model.train()
        np.random.shuffle(train)
        seen = 0.0
        for start in range(0, len(train), group):
            rows = train[start : start + group]
            opt.zero_grad()
            for micro in range(0, len(rows), args.micro):
                part = rows[micro : micro + args.micro]
                # divided by the rows of this group: the last group is smaller
                loss = model.pinball(x[part], y[part]).sum() / len(rows)
                loss.backward()
                seen += loss.item() * len(rows)
            opt.step()
            sched.step()
        model.eval()
        with torch.no_grad():
            predicted = model(x[test])
            pinball = model.pinball(x[test], y[test]).mean().item()
            inside = ((y[test] > predicted[:, 0]) & (y[test] < predicted[:, 2])).float().mean().item()
        print(f"epoch {epoch}: train {seen / len(train):.4f} test {pinball:.4f} inside 80% band: {inside:.2f}")


if __name__ == "__main__":
    main()
