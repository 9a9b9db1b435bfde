"""Meters beside the books: values that are asked for, and bytes that are moved."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from surefoot.meters.books import Books
from surefoot.meters.bytes_moved import MovedMeter
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


def asked(run: Callable[[], object]) -> float:
    """How often a value was asked for that had to be computed."""
    with Books() as books:
        meter = SyncsMeter(books.phases)
        books.beside(meter)
        run()
    return sum(account.amount for account in meter.accounts())


def packed() -> object:
    lengths = torch.tensor([2, 3])
    words = nn.Embedding(9, 4)(torch.ones(2, 3, dtype=torch.long))
    inputs = nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    outputs, _ = nn.GRU(4, 5, batch_first=True)(inputs)
    return nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)


AT_HAND: dict[str, Callable[[], object]] = {
    "a data set": lambda: [batch.sum() for batch in torch.utils.data.DataLoader(Cut(), batch_size=2)],
    "a batch": lambda: [batch.sum().item() for batch in torch.utils.data.DataLoader(Cut(), batch_size=2)],
    "lengths": packed,
    "targets": lambda: (int((torch.arange(4) > 2).sum()), nn.Linear(4, 2)(torch.ones(1, 4))),
    "arguments of a distribution": lambda: torch.distributions.Normal(nn.Linear(4, 2)(torch.ones(1, 4)), 1.0),
    "negatives": lambda: bool((torch.randint(0, 3, (5,)) == 1).any()),
}
COMPUTED: dict[str, Callable[[], object]] = {
    "a loss": lambda: nn.Linear(4, 2)(torch.ones(1, 4)).sum().item(),
    "a detached loss": lambda: float(nn.Linear(4, 2)(torch.ones(1, 4)).sum().detach()),
    "hits": lambda: (nn.Linear(4, 2)(torch.ones(3, 4)).argmax(1) == torch.ones(3)).sum().item(),
    "a sum": lambda: torch.zeros(()).add_(nn.Linear(4, 2)(torch.ones(3, 4)).detach().mean()).item(),
    "a draw": lambda: torch.distributions.Normal(nn.Linear(4, 1)(torch.ones(4)), 1.0).sample().item(),
    "a list": lambda: torch.stack([nn.Linear(4, 2)(torch.ones(4)).detach() for _ in range(2)]).mean().item(),
    "without a graph": torch.no_grad()(lambda: nn.Linear(4, 2)(torch.ones(1, 4)).sum().item()),
}


@pytest.mark.parametrize("values", AT_HAND)
def test_values_that_no_model_has_computed_wait_for_no_device(values: str):
    assert asked(AT_HAND[values]) == 0


@pytest.mark.parametrize("values", COMPUTED)
def test_values_that_a_model_has_computed_are_waited_for(values: str):
    assert asked(COMPUTED[values]) == 1


def test_the_norm_of_gradients_is_waited_for():
    def run() -> None:
        model = nn.Linear(4, 2)
        model(torch.ones(1, 4)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()

    assert asked(run) == 1


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
