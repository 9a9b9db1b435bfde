"""Loops that report only what they find about mixed samples, ignored inputs and leaked targets."""

import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.programs import named, numbers, sgd, whole


def fed(model, batches, loss, *, lr=0.05) -> list[str]:
    """What is found in a training on these batches."""
    optimizer = sgd(model, lr=lr)
    with surefoot.watch(model, optimizer) as seen:
        for batch in batches:
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
    ours = ("samples-mixed", "future", "targets", "input-ignored", "attention-across", "far-off", "softmax", "wrapped")
    return [each for each in named(seen.findings) if each.startswith(ours)]


def classified(model, x, y):
    return F.cross_entropy(model(x), y)


def of_loader(model, *arrays, loss=classified, size=8) -> list[str]:
    """The same, of batches that come from a loader while it is watched."""
    optimizer = sgd(model, lr=0.05)
    with surefoot.watch(model, optimizer) as seen:
        for batch in DataLoader(TensorDataset(*arrays), size, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            loss(model, *batch).backward()
            optimizer.step()
    ours = ("samples-mixed", "future", "targets", "input-ignored", "attention-across", "far-off", "softmax")
    return [each for each in named(seen.findings) if each.startswith(ours)]


FEATURES, CLASSES = numbers(64, 6), whole(3, 64)
