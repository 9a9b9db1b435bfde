"""Pace: steps are timed after those that were booked, by phase, with their wait for loaders."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from surefoot.events.phases import Phases
from surefoot.meters.books import Books
from surefoot.meters.pace import Pace
from surefoot.meters.process_memory import held_bytes
from surefoot.torch_inside.modes import innermost_mode


def loop(steps: int, each=lambda: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(DataLoader(TensorDataset(torch.ones(4 * steps, 4)), batch_size=4))
    for _ in range(steps):
        (batch,) = next(batches)
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        each()


def test_steps_after_the_skipped_ones_are_timed():
    ticks = iter(range(1000))
    with Phases() as phases:
        pace = Pace(phases, skipped=2, now=lambda: float(next(ticks)))
        phases.listeners.append(pace)
        loop(5)
    assert pace.updates == 5
    assert len(pace.step_seconds) == 3
    assert pace.mean().total("seconds") == pytest.approx(sum(pace.step_seconds) / 3, rel=0.2)
    assert set(pace.mean().under("seconds")) == {"load", "forward", "loss", "backward", "update"}
    assert pace.mean_data_seconds() > 0


def test_once_enough_steps_are_booked_operators_run_as_if_nobody_looked():
    seen = []
    with Books(most_steps=2) as books:
        loop(4, each=lambda: seen.append(innermost_mode() is books._operators))
    assert seen == [True, False, False, False]
    assert len(books.steps) == 2
    assert innermost_mode() is None


def test_hearing_only_models_keeps_the_phases():
    """Modules inside are no longer heard; forward and backward are."""
    names = []
    with Phases() as phases:
        loop(1)
        models = len(phases.models)
        phases.only_models()
        model = next(iter(phases.models))
        phases.listeners.append(type("Heard", (Books.__mro__[1],), {"entered": lambda _, s: names.append(s)})())
        model(torch.ones(1, 4)).sum().backward()
    assert models == 1
    assert [segment.name for segment in names] == ["forward", "loss", "backward", "between"]
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_loaders_are_followed_and_given_back():
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    plain = kind.__next__
    with Phases():
        assert kind.__next__ is not plain, "torch has changed how a DataLoader gives its batches"
    assert kind.__next__ is plain


def test_what_the_process_holds_is_known_on_linux():
    assert held_bytes(torch.device("cpu")) > 10**7
