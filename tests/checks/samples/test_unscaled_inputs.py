"""unscaled-inputs: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.loaders import INPUTS
from tests.checks.programs import mlp, named, numbers, plain, sgd, twin, whole

pytestmark = pytest.mark.sweep


@twin("unscaled-inputs")
def _(buggy):
    images = whole(256, 8, 3, 8, 8).float()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    images = images if buggy else images / 255
    return plain(model, x=images, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        ((8, 3, 8, 8), lambda raw: raw * 0.9, ["unscaled-inputs"]),
        ((8, 3, 8, 8), lambda raw: raw / 255, []),
        ((8, 1, 64), lambda raw: raw, ["unscaled-inputs"]),
        ((8, 1, 64), lambda raw: raw / 255, []),
        ((8, 1, 64), lambda raw: (raw - 128) / 1e7, ["unscaled-inputs"]),
    ],
)
def test_bytes_and_what_was_scaled_down_twice(shape, values, expected):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3) if len(shape) == 4 else nn.Conv1d(1, 4, 3)
    model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(shape))
    x = values(whole(256, *shape).float())
    assert named(plain(model, x=x, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))) == expected


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (lambda x: x * 2 - 1, []),
        (lambda x: (x * 2 - 1) * 2 - 1, ["unscaled-inputs"]),
        (lambda x: (x - 0.5) / 0.3, []),
        (lambda x: ((x - 0.5) / 0.25 - 0.5) / 0.25, ["unscaled-inputs"]),
        (lambda x: x / 255 * 2 - 1, ["unscaled-inputs"]),
    ],
    ids=["once", "twice", "standardised", "standardised twice", "divided twice"],
)
def test_pictures_that_are_normalised_twice(scale, expected):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    pictures = scale(whole(256, 8, 3, 8, 8).float() / 255)
    assert named(plain(model, x=pictures, y=whole(2, 8), optimizer=sgd(model, lr=1e-5))) == expected


PICTURES = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)) ** 3
TABLE = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([18.0, 1, 2, 3]) + 45


def about_nought(x):
    return (x - 0.5) / 0.5


def as_it_is(x):
    return x


def normalised(x):
    return (x - 0.25) / 0.28


MEAN, SPREAD = TABLE.mean(0), TABLE.std(0)


def standardised(x):
    return (x - MEAN) / SPREAD


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


def noisy(x):
    return x + 0.6 * torch.randn(x.shape)


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


def test_features_in_thousands_are_unscaled_unless_the_model_normalises_them():
    raw = INPUTS[:8] * 800 + 3000
    plainly = mlp()
    assert named(plain(plainly, x=raw, optimizer=sgd(plainly, lr=1e-6))) == ["unscaled-inputs"]
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert named(plain(model, x=raw)) == []


class Tabular(nn.Module):
    """Columns of numbers beside an embedding of categories."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.end = nn.Embedding(5, 4), nn.Linear(8, 2)

    def forward(self, age, columns, kinds):
        return self.end(torch.cat([columns, age[:, None], self.embed(kinds)], 1))


@pytest.mark.parametrize(("column", "age", "found"), [(400, 1, True), (1, 40, True), (1, 1, False)])
def test_columns_beside_an_embedding(column, age, found):
    model = Tabular()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(4):
            columns = numbers(16, 3, seed=step)
            columns[:, 1] *= column
            kinds = torch.arange(16) % 5
            out = model(age * numbers(16, seed=9 + step).abs(), columns, kinds)
            optimizer.zero_grad()
            F.cross_entropy(out, torch.arange(16) % 2).backward()
            optimizer.step()
    assert ("unscaled-inputs" in named(seen.findings)) is found
