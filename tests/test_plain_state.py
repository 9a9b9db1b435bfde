"""State in plain Python attributes that no checkpoint holds is named by check and by train; look-alikes are not."""

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.records.run import read_run


class Net(nn.Module):
    """A linear layer whose output is scaled by a number that subclasses keep somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.begin()

    def begin(self) -> None: ...

    def scale(self) -> float:
        return 1.0

    def forward(self, x):
        return self.layer(x) * self.scale()


class Counter(Net):
    def begin(self):
        self.calls = 0

    def scale(self):
        self.calls += 1
        return 1 / self.calls


class Window(Net):
    def begin(self):
        self.window = deque(maxlen=3)

    def scale(self):
        self.window.append(len(self.window))
        return 1.0 + sum(self.window)


class Listed(Net):
    def begin(self):
        self.seen = {"losses": []}

    def scale(self):
        self.seen["losses"].append(1.0)
        return 1.0 + len(self.seen["losses"])


def drawing(make, draw):
    class Drawing(Net):
        def begin(self):
            self.generator = make()

        def scale(self):
            return 1.0 + float(draw(self.generator))

    return Drawing


GENERATORS = {
    "random": drawing(lambda: random.Random(0), lambda generator: generator.random()),
    "numpy": drawing(lambda: np.random.default_rng(0), lambda generator: generator.random()),
    "legacy": drawing(lambda: np.random.RandomState(0), lambda generator: generator.rand()),
    "torch": drawing(lambda: torch.Generator().manual_seed(0), lambda generator: torch.rand((), generator=generator)),
}
STATEFUL = {"calls": Counter, "window": Window, "seen": Listed, **{name: GENERATORS[name] for name in GENERATORS}}


class Idle(Net):
    """Counts what nothing depends on."""

    def begin(self):
        self.calls, self.history = 0, []

    def scale(self):
        self.calls += 1
        self.history.append(self.calls)
        return 1.0


class Cached(Net):
    """Computes its table once, and what it keeps of the last forward is set before it is read."""

    def begin(self):
        self.table, self.last = None, 0.0

    def scale(self):
        if self.table is None:
            self.table = torch.full((), 2.0)
        self.last = float(self.table)
        return self.last


class Extra(Counter):
    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state


def recipe(model=Net, data=None, **changes) -> Recipe:
    return Recipe(
        model=model,
        data=data or (lambda: TensorDataset(torch.randn(64, 4))),
        loss=lambda model, batch: model(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        micro_batch_size=4,
        max_steps=6,
        save_every=2,
        **changes,
    )


def named(findings) -> list[str]:
    return [each.where for each in findings.findings if each.check == "state-lost-on-reload"]


def trained(made: Recipe, path) -> list[str]:
    run = surefoot.train(made, path=str(path))
    return [each.text for each in run.happened() if each.kind == "finding" and "state-lost-on-reload" in each.text]


@pytest.mark.parametrize("name", STATEFUL)
def test_state_of_a_model_is_named(name: str, tmp_path):
    attribute = name if name in ("calls", "window", "seen") else "generator"
    assert named(surefoot.check(recipe(STATEFUL[name]))) == [attribute]
    (text,) = trained(recipe(STATEFUL[name]), tmp_path / "run")
    assert f"in no state_dict: {attribute}" in text


@pytest.mark.parametrize("model", [Net, Idle, Cached, Extra])
def test_what_no_loss_depends_on_or_is_saved_is_not_named(model, tmp_path):
    assert named(surefoot.check(recipe(model))) == []
    assert trained(recipe(model), tmp_path / "run") == []


@pytest.mark.parametrize("model", [Counter, GENERATORS["torch"]])
def test_looking_changes_no_number(model, tmp_path, monkeypatch):
    looked = surefoot.train(recipe(model), path=str(tmp_path / "looked"))
    monkeypatch.setattr("surefoot.training.reactions.run_findings.FIRST", 10**6)
    alone = surefoot.train(recipe(model), path=str(tmp_path / "alone"))
    assert [row.loss for row in looked.rows()] == [row.loss for row in alone.rows()]
    assert looked.weights.read_bytes() == alone.weights.read_bytes()


def test_running_statistics_are_as_they_were_after_a_look(tmp_path, monkeypatch):
    def norm():
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Counter())

    looked = surefoot.train(recipe(norm), path=str(tmp_path / "looked"))
    monkeypatch.setattr("surefoot.training.reactions.run_findings.FIRST", 10**6)
    alone = surefoot.train(recipe(norm), path=str(tmp_path / "alone"))
    assert looked.weights.read_bytes() == alone.weights.read_bytes()


class Rows(Dataset):
    def __init__(self) -> None:
        self.reads, self.draw = 0, np.random.default_rng(0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int):
        return (torch.full((4,), float(number)),)


class Curriculum(Rows):
    def __getitem__(self, number: int):
        self.reads += 1
        return (torch.full((4,), float(number + self.reads)),)


class OwnGenerator(Rows):
    def __getitem__(self, number: int):
        return (torch.as_tensor(self.draw.normal(size=4), dtype=torch.float32),)


class Counts(Rows):
    """Counts what nothing depends on, and draws as it should."""

    def __getitem__(self, number: int):
        self.reads += 1
        return (number + torch.randn(4),)


class StatefulStream(IterableDataset):
    def __init__(self) -> None:
        self.opened = 0

    def __iter__(self):
        self.opened += 1
        return (torch.full((4,), float(self.opened)) for _ in range(64))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("data", "lost"), [(Curriculum, True), (OwnGenerator, True), (StatefulStream, True), (Rows, False), (Counts, False)]
)
def test_state_of_a_data_set_is_named(data, lost: bool, workers: int, tmp_path):
    made = recipe(data=data, workers=workers)
    if issubclass(data, Dataset) and not issubclass(data, IterableDataset):
        assert named(surefoot.check(made)) == ["the data set"] * lost
    found = trained(made, tmp_path / "run")
    assert [("changed when they were read again" in text) for text in found] == [True] * lost


def test_what_train_found_stands_in_the_run(tmp_path):
    surefoot.train(recipe(Counter), path=str(tmp_path / "run"))
    assert "state-lost-on-reload" in (tmp_path / "run/findings.json").read_text()
    assert read_run(tmp_path / "run").status == "finished"
