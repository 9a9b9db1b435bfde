"""Fused: what becomes one kernel of a compiled step, and what it reads and writes."""

import dataclasses
from graphlib import TopologicalSorter

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot
from surefoot.events.phases import Phases
from surefoot.meters.fused import Loop, Regions
from surefoot.meters.meter import Operators
from surefoot.meters.work import WorkMeter
from surefoot.records.usage import Work

ROWS, COLUMNS = 8, 16
ALL = 4 * ROWS * COLUMNS
"""The bytes of one matrix."""


def booked(run, *, unit_of=lambda phase, module: "all") -> list[Work]:
    """What is booked of a function of two matrices whose result is used, with one kernel for each region."""
    meter = WorkMeter(Phases())
    meter.regions = Regions(unit_of)
    matrices = torch.ones(ROWS, COLUMNS), torch.ones(ROWS, COLUMNS)
    with Operators([meter]):
        kept = run(*matrices)
    meter.finish()
    del kept
    return [dataclasses.replace(each, calls=1) for each in meter.works() for _ in range(each.calls)]


def bytes_of_regions(run, **options) -> list[int]:
    return sorted(each.bytes_moved for each in booked(run, **options) if each.operator == "fused")


def test_a_chain_reads_its_inputs_and_writes_its_result():
    assert bytes_of_regions(lambda x, y: ((x * 2 + y).exp() - x).relu()) == [3 * ALL]


def test_what_is_not_compiled_stays_as_it_is():
    works = booked(lambda x, y: (x * 2 + y).relu(), unit_of=lambda phase, module: "")
    assert [each.operator for each in works] == ["mul", "add", "relu"]


def test_what_others_read_is_written_too():
    def run(x, y):
        z = x * 2
        return z.relu(), z @ y.t()

    assert bytes_of_regions(run) == [3 * ALL]
    assert [each.operator for each in booked(run)] == ["mm", "fused"]


def test_a_product_between_two_keeps_them_apart():
    """They read the same and have the same size, but one must wait for the product."""

    def run(x, y):
        z = x.relu()
        return z + (z.t() @ y)[:ROWS]

    assert bytes_of_regions(run) == [2 * ALL, 3 * ALL]


def test_rows_are_reduced_and_used_in_one_kernel_and_columns_are_not():
    one = 4 * COLUMNS
    assert bytes_of_regions(lambda x, y: F.softmax(x * 2, dim=1) * y) == [3 * ALL]
    assert bytes_of_regions(lambda x, y: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1)) == [2 * ALL]
    assert bytes_of_regions(lambda x, y: (x * 2).sum(0) + 1) == [2 * one, ALL + one, 2 * ALL]


def test_two_that_read_the_same_are_one():
    assert bytes_of_regions(lambda x, y: (x * 2, x + 1)) == [3 * ALL]
    assert bytes_of_regions(lambda x, y: (x.sum(0), (x * 2).sum(0)))[0] == ALL + 4 * COLUMNS


def test_the_bias_of_a_linear_layer_belongs_to_its_product():
    bias = torch.ones(COLUMNS)

    def run(x, y):
        return (x @ y.t() @ y).add_(bias).relu()

    assert [each.operator for each in booked(run)] == ["mm", "mm", "fused"]


loops = st.builds(Loop, st.sampled_from([64, 8]), st.sampled_from([0, 8]), st.booleans())


@given(loops, loops)
def test_it_does_not_matter_which_loop_comes_first(one, other):
    assert one.joined(other) == other.joined(one)


class Remembering(Regions):
    """Regions that remember what kernels alone read and made."""

    def __init__(self, unit_of) -> None:
        super().__init__(unit_of)
        self.alone = []

    def _alone(self, reads, results, unit) -> None:
        super()._alone(reads, results, unit)
        self.alone.append((reads, {self._number(each): 0 for each in results}))


STEPS = {
    "mul": lambda x, y: x * y,
    "relu": lambda x, y: x.relu(),
    "softmax": lambda x, y: F.softmax(x, dim=1) + y,
    "row": lambda x, y: x - y.mean(1, keepdim=True),
    "column": lambda x, y: x + y.sum(0),
    "product": lambda x, y: x @ (y.t() @ y),
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=9))
def test_fused_kernels_have_an_order_and_move_no_more_than_their_operators(steps):
    def run(*values):
        made = list(values)
        for name, one, other in steps:
            made.append(STEPS[name](made[one % len(made)], made[other % len(made)]))
        return made

    def total(works):
        return sum(each.bytes_moved for each in works)

    meter = WorkMeter(Phases())
    meter.regions = Remembering(lambda phase, module: "all")
    with Operators([meter]):
        kept = run(torch.ones(ROWS, COLUMNS), torch.ones(ROWS, COLUMNS))
    kernels = dict(enumerate([*meter.regions.alone, *((each.reads, each.made) for each in meter.regions._open)]))
    before = {
        after: {first for first, (_, made) in kernels.items() if first != after and made.keys() & reads.keys()}
        for after, (reads, _) in kernels.items()
    }
    TopologicalSorter(before).prepare()  # refuses circles
    del kept
    plain = booked(run, unit_of=lambda phase, module: "")
    fused = booked(run)
    assert len(fused) <= len(plain)
    assert total(fused) <= total(plain)


def test_a_compiled_step_is_planned_faster_and_no_faster_than_its_bytes(small_recipe):
    plans = {
        way: surefoot.plan(small_recipe("gpt", f"compile={way}"), on="h100-sxm") for way in ("off", "blocks", "whole")
    }
    seconds = {way: plan.time.seconds for way, plan in plans.items()}
    assert seconds["whole"] < seconds["blocks"] < seconds["off"]
    for plan in plans.values():
        assert plan.time.seconds >= sum(work.calls * work.bytes_moved for work in plan.steady.work) / 3.35e12
        assert plan.steady.peak == plans["off"].steady.peak
    assert "the seconds are those of fused kernels" in plans["whole"].choices[-1]
