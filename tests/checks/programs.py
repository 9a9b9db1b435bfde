"""Programs that checks are tried on: numbers, small models, the plain loop, and the registry of twins."""

import importlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.checks.registry import CHECKS
from surefoot.records.finding import Findings

TWINS = {}
"""By the check: a program that takes whether it is to be buggy."""


def twin(name: str):
    def register(program):
        TWINS[name] = program
        return program

    return register


def all_twins() -> dict:
    """Every twin: it is registered when the test file of its rule is imported."""
    for file in sorted(Path(__file__).parent.glob("*/test_*.py")):
        if file.stem.removeprefix("test_").replace("_", "-") in CHECKS:
            importlib.import_module(f"tests.checks.{file.parent.name}.{file.stem}")
    return TWINS


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


def named(findings) -> list[str]:
    return [finding.check for finding in findings.findings]


def on_batches(model, loss, batches, *, optimizer=None, before=lambda: None):
    """The findings of a loop that is given its batches one by one."""
    optimizer = optimizer or sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for batch in batches:
            before()
            optimizer.zero_grad()
            loss(*batch).backward()
            optimizer.step()
    return named(seen.findings)


def looped(body, *, steps=6, model=None, optimizer=None):
    """What is found in a loop whose steps are `body(model, optimizer)`."""
    model = model or mlp()
    optimizer = optimizer or sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(steps):
            body(model, optimizer)
    return named(seen.findings)


def two_layers(between, **layers):
    """A model with something of one's own between its first and its last layer."""

    def forward(self, x):
        return self.end(between(self, self.begin(x).relu()))

    return Module(forward, begin=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2), **layers)


def found_by(seen) -> list[str]:
    return [each.check for each in seen.findings.findings]


def on_steps(model, loss, steps=8):
    """Steps on a loss that is made of the model and the number of the step."""
    optimizer = sgd(model, lr=0.01)
    with surefoot.watch() as seen:
        for step in range(steps):
            optimizer.zero_grad()
            loss(model, step).backward()
            optimizer.step()
    return named(seen.findings)


@dataclass(frozen=True, slots=True)
class Held:
    x: torch.Tensor
    scale: float = 1.0


TWENTY = (
    "missing-zero-grad", "detached-loss", "detached-layers", "eval-mode-in-training", "training-mode-in-evaluation",
    "layers-in-plain-list", "parameter-outside-optimizer", "softmax-before-cross-entropy", "broadcast-loss",
    "future-tokens-in-logits", "targets-equal-inputs", "padding-in-loss", "summed-micro-batches",
    "mean-of-unequal-means", "clipping-scaled-gradients", "scheduler-at-wrong-rate", "kept-losses",
    "update-without-gradients", "updates-rounded-away", "changing-samples",
)  # fmt: skip
