"""shuffled-evaluation: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, Subset, TensorDataset

from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, by_permutation, stepped, trained
from tests.checks.programs import twin

pytestmark = pytest.mark.sweep


@twin("shuffled-evaluation")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS)
    valid = DataLoader(Subset(data, range(32, COUNT)), 8, shuffle=buggy)
    return trained(DataLoader(Subset(data, range(32)), 8, shuffle=True), evaluation=valid)


def rows_of(batches):
    """What is found where an evaluation reads these batches of rows."""
    held = TOLD[128:172]

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for rows in batches():
                model(held[rows]).argmax(1)
        model.train()

    return stepped(by_permutation, evaluate=evaluate, every=5)


def slices(stop):
    return [slice(start, start + 8) for start in range(0, stop, 8)]


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        (lambda: slices(44), False),
        (lambda: slices(40), True),
        (lambda: torch.randperm(44).split(8), True),
        (lambda: [torch.randperm(44)[:30]], True),
        (lambda: torch.arange(43, -1, -1).split(8), False),
        (lambda: torch.randint(10, (44,)).split(8), False),
    ],
)
def test_evaluations_by_hand_read_all_samples_and_always_the_same(batches, found):
    assert ("shuffled-evaluation" in rows_of(batches)) is found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"batch_size": 16, "sampler": range(64)}, False),
        ({"batch_size": 16, "sampler": torch.randperm(64).tolist()}, True),
        ({"batch_size": 16, "sampler": torch.utils.data.SubsetRandomSampler(range(64))}, True),
        ({"batch_sampler": BatchSampler(SequentialSampler(range(64)), 16, drop_last=False)}, False),
        ({"batch_sampler": BatchSampler(SequentialSampler(range(64)), 24, drop_last=True)}, True),
        ({"batch_size": 24, "drop_last": True}, True),
        ({"batch_size": 16, "drop_last": True}, False),  # nothing is left to drop
        ({"batch_sampler": BatchSampler(SequentialSampler(range(64)), 16, drop_last=True)}, False),
    ],
)
def test_evaluation_loaders_of_all_kinds_read_in_order(options, found):
    loader = DataLoader(TensorDataset(TOLD[128:], KINDS[128:]), **options)

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            for x, _ in loader:
                model(x)
        model.train()

    assert ("shuffled-evaluation" in stepped(by_permutation, evaluate=evaluate)) is found
