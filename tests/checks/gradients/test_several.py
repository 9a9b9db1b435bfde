"""Tests that concern several rules about gradients."""

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, mlp, named, sgd

pytestmark = pytest.mark.sweep

PARTS = {"by the whole": (lambda n, whole: whole, []), "by its own": (lambda n, whole: n, ["summed-micro-batches"]),
         "by its own and their number": (lambda n, whole: 2 * n, ["mean-of-unequal-means"])}  # fmt: skip


@pytest.mark.parametrize("divided", PARTS)
def test_sums_of_micro_batches_that_are_divided_by_counts_of_their_own(divided):
    count, expected = PARTS[divided]
    model, y = mlp(), torch.tensor([0, -100, -100, -100, 1, 0, 1, 0])
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            for part, labels in zip(X.chunk(2), y.chunk(2), strict=True):
                valid = int((labels != -100).sum())
                (F.cross_entropy(model(part), labels, reduction="sum") / count(valid, 5)).backward()
            optimizer.step()
    assert named(seen.findings) == expected
