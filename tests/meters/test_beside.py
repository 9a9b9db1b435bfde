"""Meters beside the books: values that are asked for, and bytes that are moved."""

import torch
from torch import nn

from surefoot.meters.books import Books
from surefoot.meters.moved import MovedMeter
from surefoot.meters.syncs import SyncsMeter
from surefoot.records.tally import Tally


def test_a_value_that_is_asked_for_is_booked_with_its_line():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    with Books() as books:
        meter = SyncsMeter(books.phases)
        books.beside(meter)
        for _ in range(3):
            loss = model(torch.ones(1, 4)).sum()
            loss.item()
            loss.backward()
        optimizer.step()  # reads counters of its own
    (account,) = Tally.of(meter.accounts()).accounts
    assert account.name.startswith("syncs/loss/test_beside.py:")
    assert account.amount == 3


def test_bytes_moved_by_hand():
    model = nn.Linear(8, 16, bias=False)
    with Books() as books:
        meter = MovedMeter(books.phases)
        books.beside(meter)
        model(torch.ones(4, 8))
    assert Tally.of(meter.accounts()).total("moved/forward") == 4 * (4 * 8 + 8 * 16 + 4 * 16)


def test_a_list_in_place_is_read_and_written():
    tensors = [torch.ones(10), torch.ones(5)]
    with Books() as books:
        meter = MovedMeter(books.phases)
        books.beside(meter)
        torch._foreach_mul_(tensors, 2.0)
    assert sum(account.amount for account in meter.accounts()) == 4 * 2 * 15
