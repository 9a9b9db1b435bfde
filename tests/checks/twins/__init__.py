"""Programs that differ in one bug: each returns the findings of its buggy or its fixed form."""

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.records.finding import Findings

TWINS = {}
"""By the check: a program that takes whether it is to be buggy."""


def twin(name: str):
    def register(program):
        TWINS[name] = program
        return program

    return register


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


X, Y = numbers(8, 4), torch.tensor([0, 1] * 4)


def mlp(*extra: nn.Module, inputs: int = 4, classes: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), *extra, nn.Linear(8, classes))


def sgd(model: nn.Module, **options) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def plain(model, *, steps=4, loss=F.cross_entropy, x=X, y=Y, optimizer=None, zero=True, after=None) -> Findings:
    """The seven lines, each of which can be got wrong."""
    optimizer = optimizer or sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(steps):
            if zero:
                optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            if after is not None:
                after(step)
        return seen.findings


class Module(nn.Module):
    """A module made from its layers and its forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(0)
        self._forward = forward
        for name, layer in layers.items():
            setattr(
                self, name, layer() if callable(layer) and not isinstance(layer, nn.Module | torch.Tensor) else layer
            )

    def forward(self, *args, **kwargs):
        return self._forward(self, *args, **kwargs)
