"""sorted-training-data: the buggy and the fixed program, variants, and what looks like it and is fine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.loaders import COUNT, INPUTS, KINDS, LABELS, TOLD, stepped, trained
from tests.checks.programs import named, numbers, twin, whole
from tests.checks.samples.programs import SORTED, classified, told

pytestmark = pytest.mark.sweep


@twin("sorted-training-data")
def _(buggy):
    data = TensorDataset(INPUTS, LABELS.sort().values)
    return trained(DataLoader(data, 8, shuffle=not buggy))


@pytest.mark.parametrize("ordered", [True, False])
def test_batches_that_hold_one_class_each(ordered):
    order = KINDS.argsort() if ordered else torch.randperm(192)

    def batch(step):
        rows = order[16 * step : 16 * step + 16]
        return TOLD[rows], KINDS[rows]

    assert stepped(batch, updates=12) == (["sorted-training-data"] if ordered else [])


@pytest.mark.parametrize(("size", "found"), [(64, []), (8, SORTED)])
def test_all_samples_in_one_batch_need_no_shuffling(size, found):
    y = torch.tensor([0, 1]).repeat_interleave(32)
    x = numbers(64, 4) + y[:, None]
    assert told(DataLoader(TensorDataset(x, y), size), classified, passes=4) == found


@pytest.mark.parametrize(("place", "found"), [(1, []), (2, SORTED)])
def test_only_what_a_loss_asks_for_is_a_label(place, found):
    x, y, lengths = numbers(64, 4), whole(2, 64), torch.tensor([0, 1]).repeat_interleave(32)
    loader = DataLoader(TensorDataset(x, y, lengths), 8)
    seen = told(loader, lambda model, batch: F.cross_entropy(model(batch[0]), batch[place]))
    assert [each for each in seen if each in SORTED] == found


@pytest.mark.parametrize("places", [range(COUNT), list(range(COUNT))])
def test_samples_by_their_numbers_are_read_in_order(places):
    data = TensorDataset(INPUTS, LABELS.sort().values)
    assert "sorted-training-data" in named(trained(DataLoader(data, 8, sampler=places)))


ROWS, FEATURES = 256, 6


def by_hand(x: torch.Tensor, y: torch.Tensor, order) -> object:
    def batches():
        rows = order()
        for begin in range(0, ROWS, 16):
            yield x[rows[begin : begin + 16]], y[rows[begin : begin + 16]]

    return batches


def names(batches, epochs: int = 2) -> set[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with surefoot.watch() as seen:
        for _ in range(epochs):
            for x, y in batches():
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x).squeeze(-1), y).backward()
                optimizer.step()
    return {each.check for each in seen.findings.findings}


def table(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, FEATURES, generator=drawn)
    return x, (x[:, 0] - 0.7 * x[:, 1] + x[:, 2] * x[:, 3] + 0.3 * torch.randn(ROWS, generator=drawn))


@pytest.mark.parametrize("falling", [False, True])
def test_a_table_that_is_read_from_the_least_target_to_the_largest_is_sorted(falling):
    x, y = table()
    order = y.argsort(descending=falling)
    x, y = x[order], y[order]
    assert "sorted-training-data" in names(by_hand(x, y, lambda: np.arange(ROWS)))


def test_so_is_one_that_a_loader_reads():
    x, y = table()
    order = y.argsort()
    loader = DataLoader(TensorDataset(x[order], y[order]), 16)
    assert "sorted-training-data" in names(lambda: loader)


@pytest.mark.parametrize("kept", ["shuffled", "as it came", "almost sorted"])
def test_others_are_not(kept):
    x, y = table()
    order = y.argsort()
    if kept == "shuffled":
        batches = by_hand(x[order], y[order], lambda: np.random.default_rng(0).permutation(ROWS))
    elif kept == "as it came":
        batches = by_hand(x, y, lambda: np.arange(ROWS))
    else:  # by groups of which each holds targets of several sizes
        near = (y + 0.8 * torch.randn(ROWS)).argsort()
        batches = by_hand(x[near], y[near], lambda: np.arange(ROWS))
    assert "sorted-training-data" not in names(batches)


def test_a_series_whose_inputs_rise_with_it_is_read_in_its_order():
    series = torch.arange(ROWS + FEATURES + 1) / 40 + 0.05 * torch.sin(torch.arange(ROWS + FEATURES + 1.0))
    windows = series.unfold(0, FEATURES + 1, 1)[:ROWS]
    assert "sorted-training-data" not in names(by_hand(windows[:, :-1], windows[:, -1], lambda: np.arange(ROWS)))


def test_so_is_a_curve_over_its_time():
    time = torch.linspace(0, 3, ROWS)
    x = torch.cat([time[:, None], torch.randn(ROWS, FEATURES - 1)], 1)
    assert "sorted-training-data" not in names(by_hand(x, time.exp(), lambda: np.arange(ROWS)))


def test_values_that_are_learned_rise_with_what_is_learned():
    """Targets that a loop computes from its own network, as those of a Q-network are, are no data."""
    x, _ = table()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with surefoot.watch() as seen:
        for step in range(40):
            rows = torch.randint(ROWS, (16,))
            with torch.no_grad():
                wanted = 3.0 * step + 0.1 * model(x[rows]).squeeze(-1).sigmoid()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[rows]).squeeze(-1), wanted).backward()
            optimizer.step()
    assert "sorted-training-data" not in {each.check for each in seen.findings.findings}
