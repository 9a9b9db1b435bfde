"""Alarms while a run goes on: each when it begins, and not before."""

import gc
import time
from dataclasses import replace

import pytest
import torch

import surefoot
from surefoot.training.guards.drift import CREEPING, WINDOW, Drift
from tests.rows import log_row


def kinds(steps: int, **of_step) -> list[tuple[int, str]]:
    """The alarms of a run whose rows are made by functions of their step."""
    drift, found = Drift(), []
    for step in range(1, steps + 1):
        row = replace(log_row(step, loss=1.0), **{name: make(step) for name, make in of_step.items()})
        found += [(step, kind) for kind, _ in drift.see(row)]
    return found


def test_a_steady_run_raises_no_alarm():
    assert (
        kinds(1000, memory_bytes=lambda step: 10**9 + 10**6 * (step % 5), seconds=lambda step: 1 + 0.1 * (step % 3))
        == []
    )
    assert kinds(1000, memory_bytes=lambda step: None) == []


def test_creeping_memory_is_told_once():
    found = kinds(1000, memory_bytes=lambda step: 10**9 + 10**6 * step)
    assert found == [((CREEPING + 1) * WINDOW, "memory-creeping")]


def test_warming_up_is_not_creeping():
    assert kinds(1000, memory_bytes=lambda step: 10**9 + 10**6 * min(step, 90)) == []


def test_slowing_steps_are_told_and_told_again_after_a_recovery():
    slow = lambda step: 2.0 if 200 < step <= 300 or step > 600 else 1.0  # noqa: E731
    assert kinds(800, seconds=slow) == [(250, "slowing"), (650, "slowing")]


def test_a_run_that_waits_for_data_says_so():
    assert kinds(100, data_seconds=lambda step: 0.5, seconds=lambda step: 1.0) == [(WINDOW, "starving")]


CALM, STEPS = 10, 60
"""So many steps of the run below are as they should be; of all these."""
COMPUTES, READS = 0.04, 0.08
"""Seconds of a step, and of a slow sample: on a busy machine, handing over a batch takes some milliseconds."""


class Starving(torch.utils.data.Dataset):
    """Samples that take long to make, from some step on."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 64

    def identity(self) -> str:
        """So that no sample is read before the first step."""
        return "starving"

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.made += 1
        if self.made > 2 * (CALM + 3):  # two for each step, and what is made ahead
            time.sleep(READS)  # time itself: a loader that starves the step
        return torch.ones(4) * index, torch.ones(1)


@pytest.fixture
def short_windows(monkeypatch):
    monkeypatch.setattr("surefoot.training.guards.drift.WINDOW", CALM)


def test_a_run_whose_loader_starves_and_whose_memory_creeps_says_so_as_it_goes(short_windows, tmp_path):
    gc.collect()  # what other tests left, given back while this one runs, would hide what it takes
    ballast = []

    def loss(model, batch):
        time.sleep(COMPUTES)  # time itself: a step takes so long
        ballast.append(bytearray(b"x") * 2**24)
        return (model(batch[0]) - batch[1]).square().mean()

    recipe = surefoot.Recipe(
        model=lambda: torch.nn.Linear(4, 1),
        data=Starving,
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
        micro_batch_size=2,
        max_steps=STEPS,
    )
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    told = {event.kind: event for event in run.happened()}
    assert told.keys() >= {"starving", "slowing", "memory-creeping"}
    assert CALM < told["starving"].step <= 3 * CALM
    assert f"of the time of the last {CALM} steps was waiting for data" in told["starving"].text
    assert told["memory-creeping"].step >= CALM * (CREEPING + 1)
