"""counter-off-after-resume: the buggy and the fixed program, variants, and what looks like it and is fine."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import surefoot
from tests.checks.programs import found_by, mlp, sgd, twin
from tests.checks.saved_state.programs import (
    DATA,
    adam,
    kept,
    net,
    put_back,
    through_a_file,
    train,
    update,
    whole_state,
)

pytestmark = pytest.mark.sweep


@twin("counter-off-after-resume")
def _(buggy):
    loader = DataLoader(DATA, 12, shuffle=True)
    model = mlp()
    optimizer = sgd(model)

    def epochs(numbers):
        for epoch in numbers:
            for x, y in loader:
                update(model, optimizer, x, y)
            file = kept(model, optimizer, epoch=epoch)
        return file

    with surefoot.watch(model, optimizer) as seen:
        state = put_back(epochs(range(2)), model, optimizer)
        epochs(range(state["epoch"] + (not buggy), 4))
        return seen.findings


X = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > X[:, 1]).long()


class Training:
    """Counts its epochs, before or after a file is written, and what it makes of the number in the file."""

    def __init__(self, file, *, saved=0, loaded=0, late=False, anew=False):
        self.file, self.saved, self.loaded, self.late, self.anew = file, saved, loaded, late, anew
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.done = 0

    def update(self, rows):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(X[rows]), Y[rows]).backward()
        self.optimizer.step()

    def epoch(self):
        for rows in torch.randperm(48).split(16):
            self.update(rows)
        self.done += not self.late

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"epoch": self.done + self.saved}, self.file)

    def load(self):
        state = torch.load(self.file)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = 0 if self.anew else state["epoch"] + self.loaded

    def epochs(self, count):
        for _ in range(count):
            self.epoch()
            self.save()
            self.done += self.late


def told(begin, go_on) -> list[str]:
    with surefoot.watch() as seen:
        begin()
        go_on()
    return [each.check for each in seen.findings.findings if each.check == "counter-off-after-resume"]


def gone_on(file, **how) -> list[str]:
    def go_on():
        second = Training(file, **how)
        second.load()
        second.epoch()

    return told(lambda: Training(file, **how).epochs(3), go_on)


@pytest.mark.parametrize(
    ("how", "off"),
    [
        ({}, False),
        ({"loaded": 1}, True),
        ({"saved": -1}, True),
        ({"saved": -1, "loaded": 1}, False),
        ({"late": True, "loaded": 1}, False),
        ({"anew": True}, False),
    ],
)
def test_a_counter_goes_on_with_the_number_that_it_had(tmp_path, how, off):
    assert gone_on(tmp_path / "run.pt", **how) == ["counter-off-after-resume"] * off


def test_a_file_from_the_middle_of_an_epoch_has_the_number_of_that_epoch(tmp_path):
    def begin():
        first = Training(tmp_path / "run.pt")
        first.epochs(2)
        first.update(slice(16))
        first.save()

    def go_on():
        second = Training(tmp_path / "run.pt")
        second.load()
        second.done -= 1
        second.epoch()

    assert told(begin, go_on) == []


def trained_until(file, epoch_updates: int, until: int, ahead: int) -> None:
    """A job that goes on from a file if there is one, and counts its epochs in a variable."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    start = 0
    if file.exists():
        state = torch.load(file)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + ahead
    for epoch in range(start, until):
        for _ in range(epoch_updates):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x[:, :1]).backward()
            optimizer.step()
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)


@pytest.mark.parametrize("epoch_updates", [4, 6, 7])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_an_epoch_in_a_variable_is_done_once_however_many_updates_it_has(tmp_path, epoch_updates, ahead):
    with surefoot.watch() as seen:
        trained_until(tmp_path / "run.pt", epoch_updates, 3, ahead)
        trained_until(tmp_path / "run.pt", epoch_updates, 6, ahead)
    found = [each.check for each in seen.findings.findings]
    assert ("counter-off-after-resume" in found) == (ahead != 1)


def test_a_run_may_go_back_to_its_best_and_count_on():
    with surefoot.watch() as seen:
        model = net()
        optimizer = adam(model)
        files = []
        for epoch in range(6):
            train(model, optimizer, steps=2)
            if epoch == 3:
                kept = through_a_file(files[1])
                model.load_state_dict(kept["model"])
                optimizer.load_state_dict(kept["optimizer"])
            files.append(copy.deepcopy({**whole_state(model, optimizer), "epoch": epoch}))
            torch.save(files[-1], io.BytesIO())
    assert found_by(seen) == []
