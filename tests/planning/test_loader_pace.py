"""What the loader must give and gives, and how long a checkpoint takes to be written, in a plan."""

from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot.planning.timing.loader_pace import LOOK_SECONDS, loader_pace
from surefoot.records.plan import LoaderPace
from surefoot.reports.console import as_text
from surefoot.reports.plan import plan_text
from surefoot.reports.plan_page import plan_report


class Clock:
    """Goes on by `tick` at every look."""

    def __init__(self, tick: float) -> None:
        self.tick, self.now = tick, 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Made:
    """A source: it makes whole micro-batches."""

    def batch(self, number: int, size: int) -> torch.Tensor:
        return torch.full((size, 8), float(number))


def rows() -> TensorDataset:
    return TensorDataset(torch.zeros(64, 8))


def small(data=rows) -> surefoot.Recipe:
    return surefoot.Recipe(
        model=lambda: nn.Linear(8, 8),
        data=data,
        loss=lambda model, batch: model(batch[0]).sum(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
        micro_batch_size=4,
        global_batch_tokens=16,
        max_steps=10,
    )


def timed(tick: float, recipe: surefoot.Recipe | None = None) -> LoaderPace:
    return loader_pace(recipe or small(), rank=0, ranks=1, clock=Clock(tick))


def test_micro_batches_are_read_for_a_quarter_of_a_second():
    pace = timed(1 / 32)
    assert pace.samples == 7 * 4
    assert pace.samples_per_second == pytest.approx(4 * 32)


def test_an_interruption_by_another_program_does_not_count():
    usual = LOOK_SECONDS / 20
    moments = accumulate([usual] * 9 + [10 * LOOK_SECONDS])  # the fifth micro-batch ends late
    pace = loader_pace(small(), rank=0, ranks=1, clock=partial(next, moments))
    assert pace.samples == 4 * 4
    assert pace.samples_per_second == pytest.approx(4 / usual)


def test_of_a_slow_loader_one_micro_batch_is_read():
    pace = timed(2.0)
    assert pace.samples == 4
    assert pace.samples_per_second == pytest.approx(2)


def test_samples_can_be_read_by_more_processes_and_whole_batches_cannot():
    assert timed(1.0).parallel
    assert not timed(1.0, small(Made)).parallel


def test_a_plan_on_a_gpu_says_what_the_loader_must_give_and_gives_here():
    plan = surefoot.plan(small(), on="h100-sxm", loader=True, clock=Clock(1 / 32))
    assert plan.needed_samples_per_second == pytest.approx(16 / plan.time.seconds)
    assert plan.loader.samples_per_second == pytest.approx(128)
    told = as_text(plan_text(plan, tables=True), width=300)
    needed = float(f"{plan.needed_samples_per_second:.3g}")
    assert f"the loader must give {needed:,.6g} samples/s; here one process gives 128 samples/s: steps wait" in told
    assert "the loader was timed here on 28 samples, in one process" in told
    assert "128 samples/s" in plan_report(plan).sheets[0].facts["data"]


def test_a_loader_that_keeps_up_needs_no_advice():
    plan = surefoot.plan(small(), on="h100-sxm")
    assert plan.loader is None, "only the command reads data to time it"
    enough, short = 2 * plan.needed_samples_per_second, plan.needed_samples_per_second / 2.5

    def told(pace: LoaderPace) -> str:
        return as_text(plan_text(replace(plan, loader=pace)), width=300)

    assert "steps wait" not in told(LoaderPace(enough, 4, True))
    assert "unless 3 processes as fast as this one load (workers=3)" in told(LoaderPace(short, 4, True))
    assert "steps wait for it\n" in told(LoaderPace(short, 4, False)).replace(" \n", "\n")
    assert replace(plan, loader=LoaderPace(1.0, 4, True)) == plan, "a measured speed makes no other plan"


def test_a_plan_says_how_large_a_checkpoint_is_and_how_long_it_takes_by_the_storage():
    plan = replace(surefoot.plan(small(), on="h100-sxm"), checkpoint_bytes=3 * 10**10)
    short, long = (as_text(plan_text(plan, tables=tables), width=300) for tables in (False, True))
    assert "save    a checkpoint of 27.94 GiB: 5.0 min at 100 MB/s, 30 s at 1 GB/s, 6 s at 5 GB/s" in short
    assert "writing it takes 5.0 min at 100 MB/s, 30 s at 1 GB/s, 6 s at 5 GB/s, and only the staging stops" in long
    assert "a checkpoint of" not in as_text(plan_text(surefoot.plan(small())))
