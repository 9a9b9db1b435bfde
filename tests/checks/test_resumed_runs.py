"""Runs that stop, are made anew and go on in one process: what their files and optimizers have lost on the way."""

import copy
import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot

pytestmark = pytest.mark.sweep

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > X[:, 1]).long()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def adam(model, lr=1e-2):
    return torch.optim.Adam(model.parameters(), lr=lr)


def train(model, optimizer, steps=4, x=X, y=Y) -> None:
    for _ in range(steps):
        rows = torch.randperm(len(x))[:16]
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def named(seen) -> list[str]:
    return [each.check for each in seen.findings.findings]


def through_a_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file)


def gone_on(content, go_on) -> list[str]:
    """What is said of a run that is saved as `content` and that `go_on` goes on with, by a model of its own."""
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        kept = through_a_file(content(model))
        model = net()
        model.load_state_dict(kept.get("model", kept))
        go_on(model)
    return named(seen)


def weights(model):
    return model.state_dict()


def weights_and_epoch(model):
    return {"model": model.state_dict(), "epoch": 3, "best_acc": 0.9}


def same_again(model):
    train(model, adam(model))


def on_other_data(model):
    train(model, adam(model), x=X + 3.0)


def more_slowly(model):
    train(model, adam(model, lr=1e-3))


def by_another(model):
    train(model, torch.optim.SGD(model.parameters(), lr=1e-2))


@pytest.mark.parametrize(
    ("content", "go_on", "expected"),
    [
        (weights_and_epoch, same_again, ["unrestored-optimizer"]),
        (weights_and_epoch, more_slowly, []),
        (weights, by_another, []),
        (weights, on_other_data, []),
    ],
)
def test_weights_with_a_counter_are_gone_on_with_and_need_their_moments(content, go_on, expected):
    assert gone_on(content, go_on) == expected


def run(kept, *, x=X):
    """One function that begins a run and goes on with one: its optimizer is made in one line."""
    model = net()
    if kept is not None:
        model.load_state_dict(through_a_file(kept))
    train(model, adam(model), x=x)
    return model.state_dict()


def test_weights_alone_are_gone_on_with_by_the_same_line_on_the_same_data():
    with surefoot.watch() as seen:
        run(run(None))
    assert named(seen) == ["unrestored-optimizer"]
    with surefoot.watch() as seen:
        run(run(None), x=X + 3.0)
    assert named(seen) == []
    with surefoot.watch() as seen:
        run(net().state_dict())
    assert named(seen) == []


def rate(step: int) -> float:
    return 1e-2 * min(1.0, (step + 1) / 2) * (1 + math.cos(math.pi * step / 10)) / 2


def by_hand(model, optimizer, first: int) -> None:
    for step in range(first, first + 4):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        train(model, optimizer, steps=1)


@pytest.mark.parametrize(("first", "expected"), [(4, []), (0, ["unrestored-scheduler"])])
def test_a_schedule_by_hand_goes_on_where_its_optimizer_does(first, expected):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        by_hand(model, optimizer, 0)
        kept = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        model = net()
        optimizer = adam(model)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        by_hand(model, optimizer, first)
    assert named(seen) == expected


def test_an_optimizer_with_a_rate_set_by_hand_is_asked_for_its_state_though_the_rate_has_come_down():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        by_hand(model, optimizer, 0)
        kept = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        model = net()
        model.load_state_dict(kept["model"])
        by_hand(model, adam(model), 4)
    assert named(seen) == ["unrestored-optimizer"]


@pytest.mark.parametrize("forgets", [True, False])
def test_weights_that_a_model_was_given_which_nobody_has_are_lost(forgets):
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        kept = through_a_file({"weights": model.state_dict()})
        model = net()
        given = net() if forgets else model
        given.load_state_dict(kept["weights"])
        del given
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert named(seen) == (["few-matching-weights"] if forgets else [])


@pytest.mark.parametrize("copies", [True, False])
def test_best_weights_that_are_saved_beside_the_current_ones_are_their_own(copies):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=2)
            best = copy.deepcopy(model.state_dict()) if copies else model.state_dict()
            torch.save({"model": model.state_dict(), "best": best, "optimizer": optimizer.state_dict()}, io.BytesIO())
    assert named(seen) == ([] if copies else ["best-weights-by-reference"])


def test_best_weights_that_are_saved_once_more_are_no_longer_the_best():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        train(model, optimizer, steps=2)
        best = model.state_dict()
        torch.save(best, io.BytesIO())
        train(model, optimizer, steps=2)
        torch.save(best, io.BytesIO())
    assert named(seen) == ["best-weights-by-reference"]


@pytest.mark.parametrize("wrapped", [True, False])
def test_names_of_a_wrapper_in_a_file_are_mentioned(wrapped):
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        torch.save((nn.DataParallel(model) if wrapped else model).state_dict(), io.BytesIO())
    assert named(seen) == (["pickled-module"] if wrapped else [])


class Fourier(nn.Module):
    """Random features, kept in one way or another."""

    def __init__(self, keep):
        super().__init__()
        keep(self)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        turned = x @ self.table
        return self.head(torch.cat([turned.sin(), turned.cos()], 1))


def as_an_attribute(module):
    module.table = 2 * torch.randn(6, 8)


def as_a_buffer_that_is_not_saved(module):
    module.register_buffer("table", torch.randn(6, 8), persistent=False)


def as_a_buffer(module):
    module.register_buffer("table", torch.randn(6, 8))


def from_a_seed(module):
    table = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    module.register_buffer("table", table, persistent=False)


@pytest.mark.parametrize(
    ("keep", "lost"),
    [(as_an_attribute, True), (as_a_buffer_that_is_not_saved, True), (as_a_buffer, False), (from_a_seed, False)],
)
def test_a_table_that_is_drawn_when_a_model_is_built_belongs_into_its_state(keep, lost):
    with surefoot.watch() as seen:
        model = Fourier(keep)
        train(model, adam(model))
    assert ("state-lost-on-reload" in named(seen)) == lost


@pytest.mark.parametrize(("modes", "expected"), [(True, []), (False, ["training-mode-in-evaluation"])])
def test_a_last_look_at_the_same_batch_makes_an_evaluation_no_measurement_of_noise(modes, expected):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    held = torch.randn(16, 6)

    def evaluate() -> None:
        model.train(not modes)
        with torch.no_grad():
            model(held).argmax(1)
        model.train()

    with surefoot.watch() as seen:
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=6)
            evaluate()
        evaluate()
    assert named(seen) == expected


@pytest.mark.parametrize("graphs", [True, False])
def test_an_evaluation_without_a_mode_that_builds_graphs_is_mentioned(graphs):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        for _ in range(2):
            train(model, optimizer, steps=6)
            with torch.set_grad_enabled(graphs):
                for each in torch.randn(32, 6).split(4):
                    model(each)
    assert named(seen) == (["graph-built-in-evaluation"] if graphs else [])


def decayed(state, decay: float):
    """A part of a run with a rate that decays in every step, and what is saved of it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    if state is not None:
        for each, its in zip((model, optimizer, scheduler), through_a_file(state), strict=True):
            each.load_state_dict(its)
    for _ in range(12):
        train(model, optimizer, steps=1)
        scheduler.step()
    return [each.state_dict() for each in (model, optimizer, scheduler)]


@pytest.mark.parametrize(("decay", "expected"), [(0.98, []), (0.55, ["scheduler-at-wrong-rate"])])
def test_the_rates_of_a_run_that_goes_on_are_those_of_both_parts(decay, expected):
    with surefoot.watch() as seen:
        decayed(decayed(None, decay), decay)
    assert named(seen) == expected
