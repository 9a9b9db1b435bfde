"""A small network with adapters written by hand, which tests of several rules share."""

import torch
from torch import nn

import surefoot
from tests.checks.programs import X, Y


class Adapted(nn.Module):
    """A layer and, beside it, the product of two thin matrices."""

    def __init__(self, layer: nn.Linear, *, rank=2, factor=4.0, both_zero=False):
        super().__init__()
        self.layer, self.factor = layer, factor
        size = 0.0 if both_zero else 0.5
        self.down = nn.Parameter(size * torch.randn(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + self.factor * (x @ self.down.t() @ self.up.t())


def network(**options) -> nn.Sequential:
    torch.manual_seed(0)
    body = Adapted(nn.Linear(4, 8), **options)
    body.layer.requires_grad_(False)
    return nn.Sequential(body, nn.ReLU(), nn.Linear(8, 2))


def adapted(model, *, parameters=None, lr=1e-2, after=lambda model: None):
    """The findings of a loop, and of what comes after it."""
    chosen = parameters or [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=lr)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()
        after(model)
    return seen.findings
