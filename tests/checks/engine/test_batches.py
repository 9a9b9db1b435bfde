"""Batches of unusual shapes can be watched."""

import pytest
import torch

from surefoot.trees import map_tensors
from tests.checks.programs import Held, mlp, named, numbers, plain, whole

pytestmark = pytest.mark.sweep


def test_a_batch_that_is_turned_can_be_watched():
    model = mlp(inputs=8)
    assert named(plain(model, x=numbers(8, 4).t(), y=whole(2, 4))) == []


def test_tensors_in_data_classes_are_mapped():
    mapped = map_tensors(lambda each: each + 1, [Held(torch.zeros(2), 3.0)])
    assert mapped[0].x.tolist() == [1, 1]
    assert mapped[0].scale == 3.0
