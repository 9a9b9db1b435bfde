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


class Cut(torch.utils.data.Dataset):
    """Samples whose lengths are tensors."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(8)[: torch.tensor(3)]


def test_what_a_data_set_asks_of_its_own_tensors_waits_for_no_device():
    with Books() as books:
        meter = SyncsMeter(books.phases)
        books.beside(meter)
        batches = [batch.sum().item() for batch in torch.utils.data.DataLoader(Cut(), batch_size=2)]
    assert batches == [6, 6]
    (account,) = Tally.of(meter.accounts()).accounts
    assert account.amount == len(batches) + 1  # the loader draws a seed for its workers


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
