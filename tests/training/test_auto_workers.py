"""workers=auto: the number that keeps up with the step is found, said, and changes no bit."""

import os
import time

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError
from surefoot.training.auto_workers import SKIPPED, TIMED, AutoWorkers, most_workers
from surefoot.training.reactions import choose_workers
from tests.resumed import final_state, told, train_in_parts
from tests.scored import samples, scored

pytestmark = pytest.mark.sweep

LOOKED = SKIPPED + TIMED


class Slow(Dataset):
    """Samples that take a while, and draw."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int):
        time.sleep(0.004)  # time itself: workers are added because a sample is slow
        x, y = samples(60, 1)[number]
        return x + 0.1 * torch.randn(3), y


class SlowStream(IterableDataset):
    def __iter__(self):
        yield from (Slow()[number] for number in range(60))


def chosen(computes: float, loads: float, *, most: int, share: float = 1.0, steps: int = 200) -> tuple[list[int], str]:
    """The numbers that were tried for a step with these seconds, if `share` of the processes' work runs at once."""
    auto, tried = AutoWorkers(most=most), []
    for number in range(steps):
        slow = number % LOOKED < SKIPPED + TIMED // 2  # the first steps are slow, and some others: they must not count
        waits = loads if not auto.workers else max(0.0, loads / (share * auto.workers) - computes)
        change = auto.see(computes + waits + 9 * slow, waits + 9 * slow)
        if change is not None:
            tried.append(change)
    return tried, auto.said


def test_a_step_that_hardly_waits_needs_none():
    assert chosen(0.1, 0.004, most=8) == ([], "workers=0: a step computes 100 ms and waits 4 ms for its data")
    assert chosen(0.001, 0.0015, most=8)[0] == []


def test_as_many_as_keep_up():
    tried, said = chosen(0.01, 0.035, most=16)
    assert tried == [4]
    assert said.startswith("workers=4: a step takes 10 ms and waits 0 ms for its data; ")
    assert said.endswith("; without them it took 45 ms, of which it waited 35 ms")


def test_more_are_tried_if_that_is_not_enough():
    tried, said = chosen(0.01, 0.04, most=16, share=0.5)
    assert tried == [4, 8]
    assert said.startswith("workers=8: a step takes 10 ms and waits 0 ms")


def test_no_more_than_there_are_cores():
    tried, said = chosen(0.01, 0.9, most=3)
    assert tried == [3]
    assert said.startswith("workers=3:")
    assert said.endswith("; 3 is the most for the cores here")
    assert most_workers() >= 1


def test_workers_that_make_it_slower_are_given_up():
    auto = AutoWorkers(most=1)
    changes = [auto.see(0.02, 0.01) for _ in range(LOOKED)] + [auto.see(0.05, 0.0) for _ in range(LOOKED)]
    assert [each for each in changes if each is not None] == [1, 0]
    assert auto.said == "workers=0: with 1 a step took 50 ms; without them it took 20 ms, of which it waited 10 ms"


def test_nothing_changes_after_the_choice():
    auto = AutoWorkers(most=4)
    for _ in range(LOOKED):
        auto.see(0.1, 0.0)
    assert auto.said
    assert [auto.see(1.0, 0.9) for _ in range(3 * LOOKED)] == [None] * 3 * LOOKED


@pytest.fixture
def several_cores(monkeypatch):
    monkeypatch.setattr(choose_workers, "most_workers", lambda: min(2, os.cpu_count() or 1))


def test_a_run_chooses_says_so_and_has_the_same_bits(several_cores, tmp_path):
    settings = {"data": Slow, "max_steps": 32, "best": None}
    plain = surefoot.train(scored(**settings), path=str(tmp_path / "plain"))
    auto = surefoot.train(scored(workers="auto", **settings), path=str(tmp_path / "auto"))
    (said,) = [event.text for event in auto.happened() if event.kind == "workers"]
    assert said.startswith(("workers=1:", "workers=2:"))
    assert said in auto.choices
    assert told(auto) == told(plain)
    assert final_state(auto) == final_state(plain)
    rows = auto.rows()
    assert sum(row.data_seconds for row in rows[-5:]) < sum(row.data_seconds for row in rows[:5])
    assert not [event for event in plain.happened() if event.kind == "workers"]


def test_a_stopped_run_has_the_same_bits(several_cores, tmp_path):
    settings = {"data": Slow, "max_steps": 20, "best": None}
    plain = surefoot.train(scored(**settings), path=str(tmp_path / "plain"))
    parts = train_in_parts(scored(workers="auto", **settings), tmp_path / "parts", 9, 16)
    assert told(parts) == told(plain)
    assert final_state(parts) == final_state(plain)


def test_a_stream_is_left_as_it_is(several_cores, tmp_path):
    settings = {"data": SlowStream, "max_steps": 12, "best": None}
    plain = surefoot.train(scored(**settings), path=str(tmp_path / "plain"))
    auto = surefoot.train(scored(workers="auto", **settings), path=str(tmp_path / "auto"))
    (said,) = [event.text for event in auto.happened() if event.kind == "workers"]
    assert said == "workers=0: the samples of a stream depend on the number of workers; set one"
    assert told(auto) == told(plain)


def test_plan_and_check_take_it_too():
    recipe = scored(workers="auto")
    assert surefoot.plan(recipe) == surefoot.plan(scored())
    assert [each.check for each in surefoot.check(recipe).findings] == []


def test_the_command_line_takes_it(several_cores, tmp_path):
    steps = 3 * LOOKED  # enough to try 0, 1 and 2 processes: on a busy machine even this data is waited for
    words = ["layers=1", "width=16", "heads=2", "context=16", f"max_steps={steps}", "workers=auto"]
    done = CliRunner().invoke(app, ["train", "gpt", *words, "--no-plan", "--run", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert any(event.kind == "workers" for event in surefoot.read_run(tmp_path / "run").happened())


@pytest.mark.parametrize("value", ["many", -1, 2.5, None])
def test_no_other_word_is_a_number(value):
    with pytest.raises(RecipeError, match=r"workers=.* must be .*or auto"):
        scored(workers=value)
