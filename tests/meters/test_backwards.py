"""Backwards that reduce gradients, seen from outside: with and without `no_sync`."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from surefoot.costs.diagnosis import Signs, diagnose
from surefoot.meters.backwards import BackwardsMeter
from surefoot.meters.books import Books
from surefoot.records.tally import Tally


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path / 'store'}")
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("waits", [True, False])
def test_reducing_in_every_micro_batch_is_found(one_rank, waits: bool):
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Books() as books:
        meter = BackwardsMeter(books.phases)
        books.beside(meter)
        for number in range(4):
            with model.no_sync() if waits and number < 3 else nullcontext():
                model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    counted = Tally.of(meter.accounts())
    assert counted.total("backwards/all") == 4
    assert counted.total("backwards/reduced") == (1 if waits else 4)
    found = [finding.check for finding in diagnose(Signs("train.py", counted=counted, micro_batches=4))]
    assert found == ([] if waits else ["gradients-reduced-in-every-micro-batch"])
