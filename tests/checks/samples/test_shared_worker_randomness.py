"""shared-worker-randomness: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.checks.loaders import KINDS, TOLD, trained
from tests.checks.programs import mlp, named, twin
from tests.checks.samples.programs import Noisy

pytestmark = pytest.mark.sweep


@twin("shared-worker-randomness")
def _(buggy):
    return trained(DataLoader(Noisy("own" if buggy else "global"), 8, shuffle=True, num_workers=2), passes=1)


class Noise(IterableDataset):
    """A share of the samples for each worker, with noise from one generator or from one of the worker's own."""

    def __init__(self, *, shared):
        self.shared, self.generator = shared, torch.Generator().manual_seed(0)

    def __iter__(self):
        worker = get_worker_info()
        if not self.shared:
            self.generator.manual_seed(worker.id)
        for row in range(worker.id, 128, worker.num_workers):
            yield TOLD[row] + torch.randn(6, generator=self.generator), KINDS[row]


@pytest.mark.parametrize("shared", [True, False])
def test_workers_of_a_stream_that_draw_from_one_generator(shared):
    loader = DataLoader(Noise(shared=shared), 16, num_workers=2)
    found = named(trained(loader, model=mlp(inputs=6, classes=3), passes=1))
    assert found == (["shared-worker-randomness"] if shared else [])
