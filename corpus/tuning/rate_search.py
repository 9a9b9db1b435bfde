"""Random search of width, rate and decay for a wine-quality classifier; the best is trained anew and tested once."""

import itertools
import math
import random

import torch
from torch import nn


def make_wines(n, generator):
    acid = torch.randn(n, generator=generator) * 0.4 + 3.2
    sugar = torch.rand(n, generator=generator) * 9 + 1
    alcohol = torch.randn(n, generator=generator) * 1.1 + 11
    salt = torch.rand(n, generator=generator) * 0.1
    body = 0.8 * (alcohol - 11) - 1.5 * (acid - 3.2).abs() + 0.25 * (sugar - 5) - 12 * (salt - 0.05)
    body = body + 0.35 * torch.randn(n, generator=generator)
    return torch.stack([acid, sugar, alcohol, salt], dim=1), torch.bucketize(body, torch.tensor([-0.9, 0.3]))


def train_once(train, settings, epochs, seed, valid=None):
    """A model for these settings, and its best accuracy on the validation rows if there are any."""
    torch.manual_seed(seed)
    x, y = train
    mean, std = x.mean(0), x.std(0)
    model = nn.Sequential(
        nn.Linear(4, settings["width"]),
        nn.ReLU(),
        nn.Linear(settings["width"], settings["width"]),
        nn.ReLU(),
        nn.Linear(settings["width"], 3),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"], weight_decay=settings["decay"])
    best = 0.0
    for _ in range(epochs):
        model.train()
        order = torch.randperm(len(x))
        for i in range(0, len(x), 32):
            rows = order[i : i + 32]
            loss = nn.functional.cross_entropy(model((x[rows] - mean) / std), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if valid is not None:
            best = max(best, accuracy(model, valid, mean, std))
    return model, best, (mean, std)


def accuracy(model, rows, mean, std):
    model.eval()
    with torch.no_grad():
        return (model((rows[0] - mean) / std).argmax(dim=1) == rows[1]).float().mean().item()


def candidates(n):
    random.seed(4)
    grid = itertools.product([8, 16, 32], [0.0, 1e-2])
    pool = [{"width": width, "decay": decay} for width, decay in grid]
    for settings in random.sample(pool, n):
        yield dict(settings, lr=10 ** random.uniform(-3.5, -1.5))


g = torch.Generator().manual_seed(19)
x, y = make_wines(600, g)
x_train, x_valid, x_test = x.split([360, 120, 120])
y_train, y_valid, y_test = y.split([360, 120, 120])

results = []
for settings in candidates(5):
    _, score, _ = train_once((x_train, y_train), settings, epochs=4, seed=0, valid=(x_valid, y_valid))
    results.append((score, settings))
    print(f"{score:.3f}  lr 1e{math.log10(settings['lr']):.1f} width {settings['width']} decay {settings['decay']}")

score, settings = max(results, key=lambda result: result[0])
everything = torch.cat([x_train, x_valid]), torch.cat([y_train, y_valid])
final, _, (mean, std) = train_once(everything, settings, epochs=6, seed=1)
print(f"chosen {settings} ({score:.3f}); test {accuracy(final, (x_test, y_test), mean, std):.3f}")
