"""The short form of a plan: one screen, nothing silently too low, one bar, numbers as people write them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import surefoot
from surefoot.costs.advice import first_change
from surefoot.records.plan import LEFT_OUT, Fit, HostFit, Plan
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Holding, Peak, Usage
from surefoot.reports.console import as_text
from surefoot.reports.memory_bar import WIDTH, memory_bar
from surefoot.reports.plan import plan_text
from surefoot.reports.plan_sure import CUT, NOT_TIMED, ON_CPU, ON_GPU, sure_of
from surefoot.units import money_estimate, seconds_estimate

MEASURED = Path(__file__).parents[2] / "docs" / "measured"
GIB = 2**30


def usage(**accounts: float) -> Usage:
    tally = Tally.of([Account(f"memory/{name}/a", size * GIB, "bytes") for name, size in accounts.items()])
    return Usage(tally, Peak(int(tally.total("memory")), "backward"))


def planned(memory: float = 100, reserved: float = 40, **accounts: float) -> Plan:
    bytes_of = {"context_bytes": 0, "reserved_bytes": {"classic": int(reserved * GIB)}}
    fit = Fit.of("h100-sxm", memory_bytes=int(memory * GIB), **bytes_of)
    return Plan("gpt", "", {}, 1, 1, 1, 1, steady=usage(**(accounts or {"activations": 30})), fit=fit)


@pytest.fixture(scope="module")
def llama():
    return surefoot.plan(surefoot.load_recipe("llama", ["size=8b"]), on="8xh100-sxm")


def test_the_plan_of_a_large_model_fits_one_screen(llama):
    lines = as_text(plan_text(llama), width=80).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("llama fits h100-sxm, ")
    labels = [line.split()[0] for line in lines if re.match(r"[a-z]+  +\S", line)]
    assert labels == ["memory", "step", "run", "data", "save", "change", "sure", "more"]


def test_the_rest_is_said_to_be_there_and_is_there(llama):
    short, long = (as_text(plan_text(llama, tables=whole, assumed=whole), width=300) for whole in (False, True))
    (count,) = re.findall(r"--assumed \((\d+) assumptions\)", short)
    assert long.count("\nassumed: ") == int(count) > 10
    assert "assumed: " not in short
    assert "peak by phase" in long
    assert "--tables" not in long


def test_what_was_not_looked_at_stands_in_the_first_lines():
    said = ("looked at: the script up to its update 3; not at what comes later", f"held back: {'writing x; ' * 99}")
    plan = replace(planned(), script=said, assumptions=(f"{LEFT_OUT} aten.f: the library chooses it", "a"))
    lines = as_text(plan_text(replace(plan, evaluate=usage(activations=50))), width=80).splitlines()
    first = lines[: lines.index("")]
    assert lines[1] == said[0]
    assert any(line.startswith("not counted: no workspace inside aten.f") for line in first)
    assert "not in this verdict: an evaluation takes 50.00 GiB" in first
    assert len(first) < 8
    assert "not in this verdict" not in as_text(plan_text(plan))


@pytest.mark.parametrize(("memory", "columns"), [(100, 0.4), (40, 1), (20, 1)])
def test_the_bar_is_as_long_as_the_card_or_as_the_step(memory, columns):
    bar, *legend = memory_bar(planned(memory, activations=20, optimizer=10))
    assert len(bar) == WIDTH + 2
    assert len(bar.plain.strip("[ ]")) == pytest.approx(columns * WIDTH, abs=1)
    assert bar.plain.count("█") == pytest.approx(2 * bar.plain.count("▓"), abs=2)
    assert "- allocator and CUDA 10.00 GiB" in " ".join(line.plain for line in legend)


def test_memory_of_the_first_step_is_not_called_the_allocators():
    plan = replace(planned(activations=20), first=usage(activations=35))
    words = " ".join(line.plain for line in memory_bar(plan)[1:])
    assert " ".join(words.split("+")[1].split()) == "more in the first step 15.00 GiB - allocator and CUDA 5.00 GiB"


@pytest.mark.parametrize(
    ("before", "named"),
    [
        ({"init": 35}, ", most while the model is built"),
        ({"init": 35, "first": 36}, ", most in the first step"),
        ({"init": 20, "first": 20.3}, ""),
    ],
)
def test_the_verdict_names_the_phase_of_the_peak_if_it_is_not_a_steady_step(before, named):
    usages = {name: usage(activations=size) for name, size in before.items()}
    verdict = as_text(plan_text(replace(planned(activations=20), **usages)), width=200).splitlines()[0]
    assert verdict == f"gpt fits h100-sxm, 60.00 GiB to spare: it takes 40.00 GiB of 100.00 GiB{named}"


def test_what_to_change_is_one_large_tensor_or_the_largest_account():
    plan = planned(activations=20, optimizer=10)
    assert first_change(plan).endswith("; 67% of the peak is activations")
    assert first_change(plan).startswith("lower micro_batch_size, or recompute the module in backward")
    single = replace(plan, knobs={**plan.knobs, "micro_batch_size": 1})
    assert first_change(single).startswith("recompute the module in backward")
    logits = Holding(4 * GIB, "activations", "", "loss", "aten._log_softmax", "float32[8, 9]")
    large = replace(plan, steady=replace(plan.steady, largest=(logits,)))
    assert "(loss_chunks=8); the largest tensor is 4.00 GiB, float32[8, 9]" in first_change(large)
    assert "loss_chunks" not in first_change(replace(large, script=("looked at",)))
    assert "batch size" in first_change(replace(plan, script=("looked at",)))
    small = replace(plan, steady=replace(plan.steady, largest=(replace(logits, size_bytes=GIB),)))
    assert first_change(small) == first_change(plan)
    too_large = planned(20, activations=20)
    assert first_change(too_large).endswith(". --fit searches for what fits")
    assert "--largest-argument" in first_change(replace(too_large, script=("looked at",)))


@pytest.mark.parametrize(
    ("seconds", "ends", "text"),
    [
        (1.1361, (0.94, 1.29), "1.14 s (0.94 to 1.29)"),
        (0.0308, (0.0255, 0.0349), "30.8 ms (25.5 to 34.9)"),
        (224_640, (187_000, 259_200), "2.6 days (2.2 to 3)"),
        (5.28e-05, None, "0.0528 ms"),
        (1e10, None, "116,000 days"),
    ],
)
def test_an_estimate_and_its_interval_have_one_unit(seconds, ends, text):
    assert seconds_estimate(seconds, ends) == text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (5.28e-05, "less than 0.01 dollars"),
        (5.04, "5.04 dollars (4.54 to 5.54)"),
        (2014.3, "2,010 dollars (1,810 to 2,220)"),
        (76.15, "76 dollars (68 to 84)"),
    ],
)
def test_money_is_written_as_people_write_it(dollars, text):
    assert money_estimate(dollars, (0.9, 1.1)) == text


def test_how_sure_it_is_quotes_what_was_measured():
    cases, gpu = (MEASURED / "plan-memory.md").read_text(), (MEASURED / "public-runs.md").read_text()
    assert "**332 of 333 cases are within 0.02% everywhere.**" in cases
    assert "332 of 333" in ON_CPU
    rows, median = re.search(r"\*\*Held out: (\d+) rows, median ([\d.]+%)", gpu).groups()
    assert f"median error {median} in {rows} published runs" in ON_GPU


def test_a_step_unlike_those_that_were_compared_is_said_to_take_longer(llama):
    assert "4 of 5 like steps" in sure_of(llama)
    cut = replace(llama, layout="dp_shard=4 cp=2", host=HostFit(1, 8, 0))
    assert sure_of(cut).endswith(f"time: may take longer than the interval says: {CUT}; {NOT_TIMED}")


def test_the_figures_of_cut_tokens_are_those_that_were_measured():
    text = (MEASURED / "public-runs.md").read_text(encoding="utf-8").partition("## Context parallel")[2]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| tt-") and "cp=" in line]
    outside = [float(row[7]) for row in rows if row[8].strip() == "no"]
    told = f"{len(outside)} of {len(rows)} plans of published runs were {min(outside):.0f}% to {max(outside):.0f}%"
    assert told in CUT
