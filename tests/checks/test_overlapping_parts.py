"""Loops over arrays whose held-out part begins or ends in the part that they train on."""

import numpy as np
import pytest
import torch
from torch import nn

import surefoot

pytestmark = pytest.mark.sweep

DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(260, 6)).astype("float32")
Y = (X[:, 0] > X[:, 1]).astype("int64")
ROWS = 160


def told(evaluated, *, epochs: int = 4, batch: int = 16, rows: int = ROWS, ordered: bool = False) -> bool:
    """`evaluated` gives the rows that an evaluation takes, part by part."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    order = np.random.default_rng(1)
    with surefoot.watch() as seen:
        for _ in range(epochs):
            model.train()
            chosen = np.arange(rows) if ordered else order.permutation(rows)
            for start in range(0, rows, batch):
                at = chosen[start : start + batch]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(torch.from_numpy(X[at])), torch.from_numpy(Y[at])).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for part in evaluated():
                    model(torch.from_numpy(X[part]))
    return "evaluation-samples-in-training" in {each.check for each in seen.findings.findings}


def parts(first: int, last: int, size: int = 20) -> list[slice]:
    return [slice(at, min(at + size, last)) for at in range(first, last, size)]


@pytest.mark.parametrize(("first", "last"), [(150, 260), (130, 260), (110, 240)])
def test_a_held_out_part_that_begins_in_the_training_part(first, last):
    assert told(lambda: parts(first, last))
    assert told(lambda: list(reversed(parts(first, last))))


def test_held_out_rows_beside_rows_of_training_that_are_measured_on_purpose():
    assert not told(lambda: parts(ROWS, 260))
    assert not told(lambda: [*parts(0, 50), *parts(ROWS, 260)])
    assert not told(lambda: [*parts(ROWS, 260), *parts(0, 70, 32)])
    assert not told(lambda: [*parts(0, ROWS, 48), *parts(ROWS, 260, 48)])


def test_rows_of_training_that_are_drawn_for_a_measurement():
    def drawn():
        of_training = [DRAWN.integers(0, ROWS + 30, 20) for _ in range(2)]
        return [*(np.minimum(each, ROWS - 1) for each in of_training), *parts(ROWS, 260)]

    assert not told(drawn)


def test_a_training_part_that_has_not_been_read_to_its_end():
    assert not told(lambda: [*parts(0, 120), *parts(200, 260)], epochs=3, batch=4, rows=120, ordered=True)
