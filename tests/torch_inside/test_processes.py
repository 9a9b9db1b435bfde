"""What a loader yields from is one class; a child that ends with its parent is tested in test_children.py."""

import pytest
import torch
from torch.utils.data import DataLoader

from surefoot.torch_inside.processes import BATCHES


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_a_loader_are_of_one_class(workers: int):
    batches = iter(DataLoader(torch.arange(4), num_workers=workers))
    assert isinstance(batches, BATCHES)
    assert type(batches).__next__ is BATCHES.__next__, "loaders no longer share one __next__"
    assert len(list(batches)) == 4
