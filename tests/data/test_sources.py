"""Data that is made while a run trains: planned, checked, profiled, and the same after a kill."""

import itertools
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.data.identity import identity_of
from surefoot.debug.runs.audit import audit
from surefoot.errors import NonFinite, RecipeError, RunError
from surefoot.recipe.sources import Function
from tests.made import Replay, Walk, drawn, lengths, noisy_line, plain_line, recipe, replaying
from tests.ranks import Case, on_ranks
from tests.resumed import final_state, train_in_parts, train_to
from tests.waiting import until

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parents[2]


class Again:
    """An iterable that is no data set."""

    def __iter__(self):
        return drawn()


class Infinite(nn.Linear):
    """Returns what is not finite, for any input."""

    def __init__(self) -> None:
        super().__init__(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 0


RECIPES = {
    "a function": recipe,
    "an object without a state": lambda: recipe(lambda: Function(noisy_line)),
    "a replay buffer and an own step": replaying,
    "a replay buffer": lambda: recipe(Replay, loss=lengths),
    "an iterator with a state": lambda: recipe(Walk),
    "a generator": lambda: recipe(drawn),
    "a generator function": lambda: recipe(lambda: drawn),
    "an iterable": lambda: recipe(Again),
}
made_by = pytest.mark.parametrize("make", RECIPES.values(), ids=RECIPES)


def told(run) -> list[tuple]:
    return [(row.step, row.loss.hex(), row.samples_digest, row.batch_digest) for row in run.rows()]


@made_by
def test_stopped_and_resumed_it_has_the_same_bits(make, tmp_path):
    whole = surefoot.train(make(), path=str(tmp_path / "whole"))
    parts = train_in_parts(make(), tmp_path / "parts", 3, 7, 18)
    assert told(whole) == told(parts)
    assert final_state(whole) == final_state(parts)
    assert len({row.batch_digest for row in whole.rows()}) == 24  # no micro-batch comes twice
    assert audit(make(), parts.path).differing == ()


@made_by
def test_all_ways_run_it(make):
    plan, profile = surefoot.plan(make()), surefoot.profile(make(), timed_steps=1)
    assert plan.steady.peak.peak_bytes == profile.steady.peak.peak_bytes > 0
    assert plan.steady.tally.total("flops") == profile.steady.tally.total("flops")
    assert [each.check for each in surefoot.check(make()).findings] == []


@pytest.mark.parametrize("name", ["making", "replaying"])
def test_killed_at_any_moment_it_ends_with_the_same_bits(name, tmp_path):
    words = [f"tests.made:{name}", "max_steps=200", "save_every=7", "--no-plan", "--run"]

    def start(folder: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "surefoot", "train", *words, str(tmp_path / folder)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)

    assert start("whole").wait() == 0
    log = tmp_path / "killed" / "log.jsonl"
    for steps in (3, 60, 120):
        running = start("killed")
        until(lambda steps=steps: log.exists() and log.read_bytes().count(b"\n") >= steps, process=running, pause=0.002)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    assert start("killed").wait() == 0
    whole, killed = (surefoot.read_run(tmp_path / folder) for folder in ("whole", "killed"))
    assert killed.starts == 4
    assert told(whole) == told(killed)
    assert whole.weights.read_bytes() == killed.weights.read_bytes()


def test_a_function_makes_the_same_step_on_any_split(tmp_path):
    runs = [
        surefoot.train(
            recipe(lambda: plain_line, micro_batch_size=size, global_batch_tokens=16, model=lambda: nn.Linear(4, 1)),
            path=str(tmp_path / str(size)),
        )
        for size in (2, 4, 16)
    ]
    losses = [[row.loss for row in run.rows()] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] == pytest.approx(losses[2], rel=1e-4)
    assert len({tuple(row.samples_digest for row in run.rows()) for run in runs}) == 1


def test_ranks_take_turns(tmp_path):
    cases = [("losses", 1, ({},)), ("losses", 2, ({"dp_replicate": 2, "dp_shard": 1},)), ("refused", 2, ())]
    (alone,), (first, second), said = on_ranks([Case("tests.made", *case) for case in cases], tmp_path)
    assert first == second == pytest.approx(alone, rel=1e-4)
    assert all("data with a state runs on one rank, and these are 2" in each for each in said)


def test_numbers_and_random_numbers_do_not_depend_on_the_start():
    seen = []

    def batch(number: int, size: int):
        seen.append(number)
        return noisy_line(number, size)

    made = recipe(lambda: batch)
    whole = [each[1].tolist() for each in itertools.islice(batches_of(made), 5)]
    assert seen == [0, 0, 0, 1, 2, 3, 4]
    state = torch.get_rng_state()
    assert [each[1].tolist() for each in itertools.islice(batches_of(made, first_step=3), 2)] == whole[3:]
    assert torch.equal(state, torch.get_rng_state())
    assert next(batches_of(replace(made, seed=1)))[1].tolist() != whole[0]


def test_another_function_is_another_identity(tmp_path):
    assert identity_of(Function(noisy_line)) == identity_of(Function(noisy_line)) != identity_of(Function(plain_line))
    assert identity_of(Replay()) == identity_of(Replay())
    assert identity_of(Replay()).items == 0
    train_to(recipe(), tmp_path / "run", 7)
    for other in (recipe(lambda: plain_line), recipe(Walk)):
        with pytest.raises(RunError, match="the data has changed since the run began"):
            surefoot.train(other, path=str(tmp_path / "run"))


def test_held_out_data_may_be_a_function(tmp_path):
    made = recipe(evaluation=lambda: noisy_line, evaluate_every=8, evaluation_batches=3)
    losses = [row.evaluation_loss for row in surefoot.train(made, path=str(tmp_path / "run")).rows()]
    assert [step for step, loss in enumerate(losses, 1) if loss is not None] == [8, 16, 24]


def test_a_loss_that_is_not_finite_stops_data_with_a_state(tmp_path):
    """Another object would make other micro-batches, so none is blamed."""
    with pytest.raises(NonFinite) as stopped:
        surefoot.train(recipe(Walk, model=Infinite), path=str(tmp_path / "run"))
    assert "\n" not in str(stopped.value)


# ------------------------------------------------------------------------------------------- refusals


CALLS = itertools.count()
BUFFER, WALK, STREAM = Replay(), Walk(), drawn()


class Unsavable(Walk):
    def state_dict(self):
        return {"place": object()}


def counting(number: int, size: int):
    return torch.full((size, 4), float(next(CALLS))), torch.zeros(size)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": lambda: STREAM}, "an iterator cannot be put back after a kill: make it inside data()"),
        ({"data": lambda: BUFFER}, "returned the same Replay twice: make it inside data()"),
        ({"data": lambda: WALK}, "returned the same Walk twice: make it inside data()"),
        ({"data": lambda: Walk(10)}, "ended after 10 micro-batches: it must have no end"),
        ({"data": lambda: counting}, "gave two different micro-batches, so a killed run could not resume: give it"),
        ({"data": lambda: lambda number: None}, "must take (number, size), the micro-batch and its samples"),
        ({"workers": 1}, "workers=1 load samples, and batch(number, size) runs in the trainer: set workers=0"),
        ({"collate": lambda samples: samples}, "collate joins samples, and batch(number, size) returns whole"),
        ({"data": Walk, "rewind": True}, "rewind=True skips samples, and data with a state cannot skip them"),
        ({"data": Unsavable}, "state_dict() of the data cannot be saved: state['data']['place'] is a builtins.object"),
        (
            {"evaluation": Walk, "evaluate_every": 2},
            "evaluation and test data must be the same each time: they may not have a state",
        ),
        ({"test": lambda: noisy_line}, "test data needs a length"),
        (
            {"evaluation": lambda: noisy_line, "evaluate_every": 2, "evaluation_batches": None},
            "a stream has no end, so it cannot be evaluated whole; set evaluation_batches",
        ),
    ],
)
def test_what_is_refused(changes, said, tmp_path):
    with pytest.raises(RecipeError) as refused:
        surefoot.train(recipe(**changes), path=str(tmp_path / "run"))
    assert said in str(refused.value)
