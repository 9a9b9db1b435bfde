"""Tests that concern several rules about samples."""

import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.checks.loaders import COUNT, INPUTS, LABELS, trained
from tests.checks.programs import mlp, named
from tests.checks.samples.programs import PairStream

pytestmark = pytest.mark.sweep


class Noisy(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return INPUTS[index] + 0.1 * torch.randn(4), LABELS[index]


@pytest.mark.parametrize("seeded", [True, False])
def test_a_seed_that_is_set_before_every_epoch_repeats_orders_and_augmentations(seeded):
    def epoch(number):
        torch.manual_seed(0 if seeded else number)

    expected = ["same-order-every-epoch", "same-randomness-every-epoch"] if seeded else []
    assert sorted(named(trained(DataLoader(Noisy(), 8, shuffle=True), epoch=epoch))) == expected


@pytest.mark.parametrize(
    ("stream", "start", "expected"),
    [
        (PairStream(), None, []),
        (PairStream(shared=False), None, ["unsharded-stream"]),
        (PairStream(), random.seed, ["same-randomness-every-epoch"]),
        (PairStream(ordered=True), None, ["sorted-training-data"]),
    ],
)
def test_streams_with_noise(stream, start, expected):
    loader = DataLoader(stream, 16, num_workers=2, worker_init_fn=start)
    assert named(trained(loader, model=mlp(inputs=6, classes=3), passes=1)) == expected
