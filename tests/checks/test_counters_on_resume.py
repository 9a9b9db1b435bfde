"""Objects that train, save how far they are, and go on from there: with which number?"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot

pytestmark = pytest.mark.sweep

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
