"""unsharded-stream: the buggy and the fixed program, variants, and what looks like it and is fine."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, trained
from tests.checks.programs import mlp, named, twin
from tests.checks.samples.programs import PairStream

pytestmark = pytest.mark.sweep


class Stream(IterableDataset):
    def __init__(self, whole_stream):
        self.whole_stream = whole_stream

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if self.whole_stream or worker is None else (worker.id, worker.num_workers)
        for index in range(first, COUNT, step):
            yield INPUTS[index], LABELS[index]


@twin("unsharded-stream")
def _(buggy):
    return trained(DataLoader(Stream(buggy), 8, num_workers=2), passes=1)


class Told(IterableDataset):
    """Samples that every worker tells from its own place on, or its share of them, with noise that is drawn anew."""

    def __init__(self, step, noise):
        self.step, self.noise = step, noise

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, self.step or worker.num_workers)
        for place in range(first, len(TOLD), step):
            yield TOLD[place] + self.noise * torch.randn(6), torch.tensor(place)


@pytest.mark.parametrize(("step", "noise"), [(1, 0.0), (1, 0.1), (None, 0.1)])
def test_workers_that_differ_only_in_where_they_begin(step, noise):
    model, loader = nn.Linear(6, 192), DataLoader(Told(step, noise), 16, num_workers=2)
    assert ("unsharded-stream" in named(trained(loader, passes=1, model=model))) is (step == 1)


class Shuffled(PairStream):
    """In an order of its own in every worker, without noise."""

    def __iter__(self):
        rows = self.rows[get_worker_info().id :: 2] if get_worker_info() and self.shared else self.rows
        return ((TOLD[row], KINDS[row]) for row in rows[torch.randperm(len(rows))])


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_that_every_worker_shuffles_for_itself(shared):
    loader = DataLoader(Shuffled(shared=shared), 16, num_workers=2)
    assert named(trained(loader, model=mlp(inputs=6, classes=3), passes=1)) == ([] if shared else ["unsharded-stream"])
