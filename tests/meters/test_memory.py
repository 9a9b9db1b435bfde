"""The memory meter: storages booked once, from birth to death, under the right account."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from surefoot.meters.books import Books


def one_step(model: nn.Module, x: torch.Tensor, *, steps: int = 2, optimizer=torch.optim.Adam):
    made = optimizer(model.parameters())
    with Books(model) as books:
        for _ in range(steps):
            made.zero_grad()
            model(x).square().mean().backward()
            made.step()
    return books.steps


def test_accounts_of_a_linear_layer_by_hand():
    model, x = nn.Linear(100, 50, bias=False), torch.ones(10, 100)
    tally = one_step(model, x)[1].tally
    assert tally.total("memory/parameters") == 100 * 50 * 4
    assert tally.total("memory/optimizer") == 2 * 100 * 50 * 4 + 4
    assert tally.total("memory/inputs") == 10 * 100 * 4
    assert tally.total("memory/gradients") == 100 * 50 * 4


def test_storages_know_the_stream_they_were_made_in():
    seen, streams = [], [torch.cpu.Stream(), torch.cpu.Stream()]
    with Books() as books:
        books.memory.book.followers.append(lambda booking: seen.append(booking.stream))
        kept = [torch.ones(1)]
        for stream in (*streams, streams[0]):
            with torch.cpu.stream(stream):
                kept.append(torch.ones(1))
        kept.append(torch.ones(1))
    assert seen == [0, 1, 2, 1, 0]


def test_saved_activations_are_told_from_temporaries():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            dropped = (x + 1) * 0  # made and dropped: temporary
            del dropped
            return (x * self.weight).sin()  # keeps x * weight until the backward of sin

    x = torch.ones(1000)
    with Books(model := Two()) as books:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).sum().backward()
        optimizer.step()
    tally, peak = books.steps[0].tally, books.steps[0].peak
    assert peak.phase == "backward"
    assert tally.total("memory/activations") == 4000 + 4  # x * weight, and the loss
    assert books.steps[0].phase_peaks["forward"].peak_bytes == 4 + 3 * 4000


def test_memory_at_the_peak_adds_up_and_phases_stay_below_it():
    for usage in one_step(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1)), torch.ones(16, 32)):
        assert usage.tally.total("memory") == usage.peak.peak_bytes
        assert usage.peak.peak_bytes == max(peak.peak_bytes for peak in usage.phase_peaks.values())
        assert usage.phase_peaks[usage.peak.phase] == usage.peak


def test_a_freed_tensor_is_no_longer_booked():
    with Books() as books:
        kept = torch.ones(10)
        torch.ones(1000)
        live = sum(booking.size for booking in books.memory._bookings.values())
        assert live == 40
        del kept
        assert not books.memory._bookings


def test_two_forwards_before_one_backward_both_leave_activations():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Books(model) as books:
        (model(torch.ones(64, 8)) + model(torch.ones(64, 8))).sum().backward()
        optimizer.step()
    one = 64 * 8 * 4
    assert books.steps[0].tally.total("memory/activations/0") == 2 * one


def test_loading_from_a_data_set_books_the_batch_and_not_the_data_set():
    data = torch.randn(10_000, 8)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Books(model) as books:
        for start in (0, 16):
            batch = torch.stack([data[start + index] for index in range(16)])
            model(batch).sum().backward()
            optimizer.step()
    assert books.steps[1].tally.total("memory/inputs") <= 2 * 16 * 8 * 4


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    batch=st.integers(1, 16),
    activation=st.sampled_from([nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid]),
)
def test_fake_and_real_tensors_are_booked_alike(widths, batch, activation):
    from contextlib import nullcontext

    from surefoot import fake_world

    def usages(world):
        with world:
            layers = [nn.Sequential(nn.Linear(a, b), activation()) for a, b in pairwise(widths)]
            return one_step(nn.Sequential(*layers), torch.ones(batch, widths[0]))

    assert usages(fake_world()) == usages(nullcontext())


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_convolutions_are_booked_alike_on_fake_and_real_tensors(kind):
    from contextlib import nullcontext

    from surefoot import fake_world

    def usages(world):
        with world:
            model = nn.Sequential(kind(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), kind(8, 4, 3, stride=2))
            return one_step(model, torch.ones(2, 3, 12, 12))

    assert usages(fake_world()) == usages(nullcontext())


def test_the_moment_of_the_peak_is_named():
    """A huge tensor made for a moment in the second layer's forward is the peak, and is said to be."""

    class Spike(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 0 * x.repeat(1, 10_000).numel()

    model = nn.Sequential(nn.Linear(8, 8), Spike(8, 8))
    peak = one_step(model, torch.ones(4, 8))[1].peak
    assert (peak.phase, peak.module, peak.operator) == ("forward", "1", "aten.repeat.default")


def test_a_phase_that_allocates_nothing_has_a_peak_too():
    model = nn.Linear(8, 8)
    for usage in one_step(model, torch.ones(4, 8), optimizer=lambda p: torch.optim.AdamW(p, fused=True)):
        assert set(usage.phase_peaks) >= {"forward", "loss", "backward", "update"}


def test_when_booking_has_ended_the_meters_no_longer_grow():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    with Books(model, most_steps=2) as books:
        for _ in range(3):
            step()
        held = len(books.memory.book._events), len(books.memory._bookings)
        for _ in range(5):
            step()
        assert len(books.steps) == 2
        assert (len(books.memory.book._events), len(books.memory._bookings)) == held
