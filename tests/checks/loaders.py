"""Rows with labels, and loops that train on them, from loaders and by hand."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.programs import mlp, named, numbers, sgd, whole

COUNT = 48
INPUTS, LABELS = numbers(COUNT, 4), whole(2, COUNT)


def trained(loader, *, passes=2, model=None, evaluation=None, loss=F.cross_entropy, epoch=lambda _: None):
    model = model or mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(passes):
            epoch(number)
            for x, y in loader:
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
            if evaluation is not None:
                model.eval()
                with torch.no_grad():
                    for x, _ in evaluation:
                        model(x)
                model.train()
        return seen.findings


FORTY_ROWS = TensorDataset(numbers(40, 4), whole(2, 40))


def loader(**options):
    return DataLoader(FORTY_ROWS, **{"batch_size": 8, **options})


MANY, KINDS = numbers(192, 6), whole(3, 192)
TOLD = numbers(3, 6, seed=5)[KINDS] * 3 + MANY
"""Inputs that tell their kind."""


def stepped(batches, *, model=None, evaluate=None, every=10, loss=F.cross_entropy, schedule=None, updates=20):
    """A loop that is given its batches by a function, evaluates now and then, and steps a scheduler per update."""
    model = model or mlp(inputs=6, classes=3)
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        scheduler = schedule(optimizer) if schedule else None
        for step in range(updates):
            x, y = batches(step)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            if evaluate is not None and step % every == every - 1:
                evaluate(model)
    return named(seen.findings)


def by_permutation(step):
    rows = torch.randperm(128)[:16]
    return TOLD[rows], KINDS[rows]
