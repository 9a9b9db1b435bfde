"""A journal: what was written down and posted later is what would have been booked at once."""

import torch
from torch import nn

from surefoot.meters.books import Books
from surefoot.meters.journal import Journal, post


def run(books: Books, model: nn.Module) -> list:
    """Two steps of two micro-batches under the books, and what they hold of each."""
    optimizer = torch.optim.AdamW(model.parameters())
    with books:
        for _ in range(2):
            for _ in range(2):
                model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [*books.steps, books.close()]


def test_posted_entries_give_the_same_books():
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))

    model = build()
    direct = run(Books(model), model)
    model, journal = build(), Journal(lambda name: (name, ()))
    assert not any(usage.tally.accounts for usage in run(Books(model, journal=journal), model))
    later = Books(model)
    closed = [later.close() for _ in post(journal.finished(), later, {})]
    assert closed == direct
    assert closed[0].peak.peak_bytes > 0


def test_what_is_freed_at_once_is_written_in_the_order_of_age():
    journal = Journal(lambda name: (name, ()))
    first, second = (journal.book(size, "temporary", "", "aten.empty", "float32[1]") for size in (4, 8))
    journal.free(second)
    journal.free(first)
    since = [entry.numbers for entry in journal.finished() if entry.words[0] == "free"]
    assert since == [(1,), (0,)]


def test_a_module_in_a_repeated_block_is_a_pattern_and_a_number():
    journal = Journal(lambda name: ("layers.{}", (3,)) if name == "layers.3" else (name, ()))
    journal.book(16, "temporary", "layers.3", "aten.mm", "bfloat16[2, 4]")
    entry = journal.finished()[0]
    assert entry.words == ("book", "temporary", "layers.{}", "aten.mm", "bfloat16[{}, {}]", 0)
    assert (entry.sizes, entry.numbers) == ((16, 2, 4), (3,))
    books = Books()
    list(post([entry], books, {}))
    booking = books.memory.book.live()[0]
    assert (booking.module, booking.tensor, booking.size) == ("layers.3", "bfloat16[2, 4]", 16)
