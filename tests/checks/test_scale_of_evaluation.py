"""Inputs that are scaled for training, and not for evaluation."""

import pytest
import torch
from torch import nn

import surefoot

pytestmark = pytest.mark.sweep

ROWS = 160


def told(x: torch.Tensor, train, evaluate, layer: nn.Module | None = None) -> list[str]:
    torch.manual_seed(0)
    y = (x.flatten(1).float().std(1) > x.flatten(1).float().std(1).median()).long()
    layer = layer or (nn.Conv2d(1, 4, 3) if x.dim() == 4 else nn.Linear(x.shape[1], 8))
    model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, *x.shape[1:]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with surefoot.watch() as seen:
        for _ in range(2):
            model.train()
            for rows in torch.randperm(ROWS).split(10):  # more updates than are looked at closely
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(train(x[rows])), y[rows]).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                model(evaluate(x[ROWS:]))
    return [each.seen for each in seen.findings.findings if each.check == "unscaled-inputs"]


TABLE = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([18.0, 1, 2, 3]) + 45
MEAN, SPREAD = TABLE.mean(0), TABLE.std(0)
PICTURES = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)) ** 3


def as_it_is(x):
    return x


def standardised(x):
    return (x - MEAN) / SPREAD


def normalised(x):
    return (x - 0.25) / 0.28


def about_nought(x):
    return (x - 0.5) / 0.5


def noisy(x):
    return x + 0.6 * torch.randn(x.shape)


@pytest.mark.parametrize(
    ("x", "train", "evaluate"),
    [
        (TABLE, standardised, as_it_is),
        (PICTURES, normalised, as_it_is),
        (PICTURES, about_nought, as_it_is),
        (PICTURES, as_it_is, lambda x: (255 * x).round()),
    ],
)
def test_what_is_scaled_for_training_alone(x, train, evaluate):
    (said,) = told(x, train, evaluate)
    assert "in evaluation" in said


@pytest.mark.parametrize(
    ("x", "train", "evaluate"),
    [
        (TABLE, standardised, standardised),
        (PICTURES, normalised, normalised),
        (PICTURES, as_it_is, as_it_is),
        (PICTURES, noisy, as_it_is),
        (PICTURES, lambda x: normalised(noisy(x)), normalised),
        (PICTURES, normalised, lambda x: torch.zeros_like(x)),
        (PICTURES, normalised, lambda x: x[:1]),
    ],
)
def test_what_enters_alike_or_with_noise(x, train, evaluate):
    assert told(x, train, evaluate) == []
