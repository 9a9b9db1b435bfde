"""scaled-before-split: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import surefoot
from tests.checks.loaders import trained
from tests.checks.programs import mlp, named, numbers, sgd, twin

RAW = numbers(160, 4, seed=1) * torch.tensor([1.0, 3.0, 0.5, 2.0]) + torch.tensor([0.3, -1.0, 2.0, 0.5])
KINDS = (RAW[:, 0] + numbers(160, seed=2) > 0.3).long()
ORDER = torch.randperm(160, generator=torch.Generator().manual_seed(3))


def standard(part, of):
    return (part - of.mean(0)) / of.std(0)


def ranged(part, of):
    return (part - of.amin(0)) / (of.amax(0) - of.amin(0))


def split(scale, *, first):
    """What is found where samples are scaled before they are split, or after."""
    of = RAW if first else RAW[ORDER[:120]]
    data = TensorDataset(scale(RAW, of), KINDS)
    train, test = Subset(data, ORDER[:120].tolist()), Subset(data, ORDER[120:].tolist())
    return trained(DataLoader(train, 16, shuffle=True), evaluation=DataLoader(test, 16))


@twin("scaled-before-split")
def _(buggy):
    return split(standard, first=buggy)


@pytest.mark.parametrize("first", [True, False])
def test_ranges(first):
    assert named(split(ranged, first=first)) == (["scaled-before-split"] if first else [])


@pytest.mark.parametrize("first", [True, False])
def test_arrays_of_a_loop(first):
    model = mlp()
    optimizer = sgd(model)
    x = standard(RAW, RAW if first else RAW[:120])
    train, test = x[:120], x[120:]
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for rows in torch.randperm(120).split(20):
                optimizer.zero_grad()
                F.cross_entropy(model(train[rows]), KINDS[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                model(test)
    assert named(seen.findings) == (["scaled-before-split"] if first else [])


@pytest.mark.sweep
def test_the_training_set_may_be_measured():
    data = TensorDataset(standard(RAW, RAW), KINDS)
    loader = DataLoader(data, 16, shuffle=True)
    assert "scaled-before-split" not in named(trained(loader, evaluation=loader))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("scale", [standard, ranged])
def test_a_series_and_its_windows(first, scale):
    raw = numbers(300, seed=4).cumsum(0) + torch.linspace(0, 30, 300)
    series = scale(raw, raw if first else raw[:220])
    x, y = series.unfold(0, 12, 1)[:-1], series[12:, None]
    parts = [TensorDataset(x[rows], y[rows]) for rows in (slice(0, 208), slice(208, None))]
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    with surefoot.watch() as seen:
        optimizer = sgd(model, lr=0.01)
        for _ in range(2):
            for a, b in DataLoader(parts[0], 16, shuffle=True):
                optimizer.zero_grad()
                F.mse_loss(model(a), b).backward()
                optimizer.step()
            with torch.no_grad():
                for a, _ in DataLoader(parts[1], 16):
                    model(a)
    assert named(seen.findings) == (["scaled-before-split"] if first else [])


@pytest.mark.sweep
def test_a_range_that_training_rows_reach_alone():
    raw = RAW.clone()
    raw[ORDER[0]], raw[ORDER[1]] = RAW.amin(0) - 1, RAW.amax(0) + 1
    data = TensorDataset(ranged(raw, raw), KINDS)
    train, test = Subset(data, ORDER[:120].tolist()), Subset(data, ORDER[120:].tolist())
    assert named(trained(DataLoader(train, 16, shuffle=True), evaluation=DataLoader(test, 16))) == []
