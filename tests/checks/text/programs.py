"""Programs that tests of several rules about text share."""

import torch

import surefoot
from tests.checks.programs import named, sgd, whole


def padded(*, value: int = 0):
    text = 1 + whole(30, 4, 13)
    for row, length in enumerate((5, 8, 11, 13)):
        text[row, length:] = value
    return text


PAD, START, END = 0, 1, 2


def texts(lengths, *, seed=0, end=END) -> torch.Tensor:
    """Rows of so many tokens between a start and an end, padded to the longest."""
    rows = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in enumerate(lengths):
        rows[row, 0], rows[row, length + 1] = START, end
        rows[row, 1 : length + 1] = 3 + whole(29, length, seed=seed + row)
    return rows


def trained(model, step, *, steps=4) -> list[str]:
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for number in range(steps):
            optimizer.zero_grad()
            step(number).backward()
            optimizer.step()
    return named(seen.findings)
