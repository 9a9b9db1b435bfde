"""unrestored-optimizer: the buggy and the fixed program, variants, and what looks like it and is fine."""

import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import surefoot
from tests.checks.programs import X, Y, found_by, mlp, named, twin
from tests.checks.saved_state.programs import (
    OTHER_X,
    POINTS,
    SIDES,
    adam,
    by_hand,
    net,
    normed_net,
    resumed,
    step,
    through_a_file,
    train,
    whole_state,
)

pytestmark = pytest.mark.sweep


@twin("unrestored-optimizer")
def _(buggy):
    return resumed(optimizer_back=not buggy, scheduler_back=True)


class Noisy(Dataset):
    def __init__(self, seed: int):
        drawn = torch.Generator().manual_seed(seed)
        self.rows = torch.randn(96, 6, generator=drawn)
        self.targets = self.rows[:, :1] - self.rows[:, 1:2]

    def __len__(self):
        return 96

    def __getitem__(self, index):
        return self.rows[index] + 0.1 * torch.randn(6), self.targets[index]


def job(file, seed: int, *, restores: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    start = 0
    if file.exists():
        state = torch.load(file)
        model.load_state_dict(state["model"])
        if restores:
            optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start = state["epoch"] + 1
    for epoch in range(start, start + 2):
        for x, y in DataLoader(Noisy(seed), 16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**states, "epoch": epoch}, file)


@pytest.mark.parametrize(("seed", "restores", "named"), [(0, False, True), (0, True, False), (1, False, False)])
def test_moments_that_are_not_put_back_are_named_where_the_data_are_the_same(tmp_path, seed, restores, named):
    torch.manual_seed(0)
    with surefoot.watch() as seen:
        job(tmp_path / "run.pt", 0, restores=True)
        job(tmp_path / "run.pt", seed, restores=restores)
    found = {each.check for each in seen.findings.findings}
    assert ("unrestored-optimizer" in found) == named


@pytest.mark.parametrize(("x", "expected"), [(POINTS, ["unrestored-optimizer"]), (OTHER_X, [])])
def test_training_on_other_data_may_begin_with_an_optimizer_of_its_own(x, expected):
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        train(model, optimizer)
        kept = through_a_file(whole_state(model, optimizer))
        model = net()
        model.load_state_dict(kept["model"])
        train(model, adam(model), x=x)
    assert found_by(seen) == expected


def test_the_best_of_a_fold_may_be_tested_before_the_next_fold_is_trained():
    def test(kept):
        model = net()
        model.load_state_dict(kept["model"])
        with torch.no_grad():
            return model.eval()(POINTS).argmax(1).eq(SIDES).float().mean()

    with surefoot.watch() as seen:
        for _ in range(2):
            model = net()
            optimizer = adam(model)
            train(model, optimizer)
            test(through_a_file(whole_state(model, optimizer)))
    assert found_by(seen) == []


def test_weights_that_another_training_begins_with():
    model = mlp()

    def gone_on(kind, rate):
        first = torch.optim.Adam(model.parameters(), lr=1e-2)
        file = io.BytesIO()
        with surefoot.watch() as seen:
            for optimizer in (first, kind(model.parameters(), lr=rate)):
                for _ in range(3):
                    optimizer.zero_grad()
                    F.cross_entropy(model(X), Y).backward()
                    optimizer.step()
                if optimizer is first:
                    torch.save({"model": model.state_dict(), "optimizer": first.state_dict()}, file)
                    file.seek(0)
                    model.load_state_dict(torch.load(file)["model"])
        return named(seen.findings)

    assert gone_on(torch.optim.SGD, 1e-2) == []
    assert gone_on(torch.optim.Adam, 1e-3) == []
    assert gone_on(torch.optim.Adam, 1e-2) == ["unrestored-optimizer"]


def by_another(model):
    train(model, torch.optim.SGD(model.parameters(), lr=1e-2))


def gone_on(content, go_on) -> list[str]:
    """What is said of a run that is saved as `content` and that `go_on` goes on with, by a model of its own."""
    with surefoot.watch() as seen:
        model = net()
        train(model, adam(model))
        kept = through_a_file(content(model))
        model = net()
        model.load_state_dict(kept.get("model", kept))
        go_on(model)
    return found_by(seen)


def more_slowly(model):
    train(model, adam(model, lr=1e-3))


def on_other_data(model):
    train(model, adam(model), x=POINTS + 3.0)


def same_again(model):
    train(model, adam(model))


def weights(model):
    return model.state_dict()


def weights_and_epoch(model):
    return {"model": model.state_dict(), "epoch": 3, "best_acc": 0.9}


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


def run(kept, *, x=POINTS):
    """One function that begins a run and goes on with one: its optimizer is made in one line."""
    model = net()
    if kept is not None:
        model.load_state_dict(through_a_file(kept))
    train(model, adam(model), x=x)
    return model.state_dict()


def test_weights_alone_are_gone_on_with_by_the_same_line_on_the_same_data():
    with surefoot.watch() as seen:
        run(run(None))
    assert found_by(seen) == ["unrestored-optimizer"]
    with surefoot.watch() as seen:
        run(run(None), x=POINTS + 3.0)
    assert found_by(seen) == []
    with surefoot.watch() as seen:
        run(net().state_dict())
    assert found_by(seen) == []


def test_an_optimizer_with_a_rate_set_by_hand_is_asked_for_its_state_though_the_rate_has_come_down():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        by_hand(model, optimizer, 0)
        kept = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        model = net()
        model.load_state_dict(kept["model"])
        by_hand(model, adam(model), 4)
    assert found_by(seen) == ["unrestored-optimizer"]


def made_anew(model, optimizer, state):
    optimizer.load_state_dict(state)
    return adam(model)


def put_into_another(model, optimizer, state):
    adam(model).load_state_dict(state)
    return optimizer


def resumed_by(restore) -> list[str]:
    """What is said of a run that goes on from a file, with the optimizer that `restore` returns."""
    model = normed_net()
    optimizer = adam(model)
    step(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict()], "step": 1}, file)
    file.seek(0)
    with surefoot.watch(model) as seen:
        kept = torch.load(file)
        model.load_state_dict(kept["model"])
        going_on = restore(model, adam(model), kept["optimizers"][0])
        for _ in range(3):
            step(model, going_on)
    return [each.check for each in seen.findings.findings]


@pytest.mark.parametrize("restore", [put_into_another, made_anew])
def test_an_optimizer_that_goes_on_without_the_state_is_named_though_another_was_given_it(restore):
    assert resumed_by(restore) == ["unrestored-optimizer"]


def put_back(model, optimizer, state):
    optimizer.load_state_dict(state)
    return optimizer


def test_an_optimizer_that_was_given_its_state_may_go_on():
    assert resumed_by(put_back) == []


def without_moments(model, optimizer, state):
    optimizer.load_state_dict(state | {"state": {}})
    return optimizer


def test_a_state_whose_moments_were_taken_out_is_none():
    assert "unrestored-optimizer" in resumed_by(without_moments)
