"""What records show, and what is to be changed first."""

import pytest

from surefoot.costs.diagnosis import Signs, diagnose, memory_slope, said_once
from surefoot.records.finding import Finding
from surefoot.records.tally import Account, Tally
from tests.rows import log_row

ONE_ITEM = Tally.of([Account("syncs/loss/train.py:12", 4, "times"), Account("backwards/all", 4, "times")])
REDUCED = Tally.of([Account("backwards/all", 4, "times"), Account("backwards/reduced", 4, "times")])
NO_SYNC = Tally.of([Account("backwards/all", 4, "times"), Account("backwards/reduced", 1, "times")])
KEPT = Tally.of([Account("kept/loss/aten.mean.default", 3, "tensors")])
TROUBLES = {
    "waiting-for-data": {"step_seconds": 1.0, "data_seconds": 0.4},
    "value-asked-in-every-micro-batch": {"counted": ONE_ITEM, "micro_batches": 4},
    "tensors-kept-from-step-to-step": {"kept": KEPT},
    "gradients-reduced-in-every-micro-batch": {"counted": REDUCED, "micro_batches": 4},
    "graph-breaks": {"graph_breaks": ("model.py:3: print",)},
    "recompilations": {"recompilations": 2},
}


@pytest.mark.parametrize("check", TROUBLES)
def test_each_trouble_is_named_first(check: str):
    assert [finding.check for finding in diagnose(Signs("train.py", **TROUBLES[check]))] == [check]


@pytest.mark.parametrize("check", ["waiting-for-data", "value-asked-in-every-micro-batch"])
@pytest.mark.parametrize(("device", "severity"), [("cpu", "info"), ("cuda:0", "warning"), ("", "warning")])
def test_what_an_accelerator_waits_for_is_information_on_a_cpu(check: str, device: str, severity: str):
    (found,) = diagnose(Signs("train.py", device=device, **TROUBLES[check]))
    assert found.severity == severity


@pytest.mark.parametrize(
    "signs",
    [
        Signs("clean", step_seconds=1.0, data_seconds=0.05),
        Signs("a model of 226 parameters", step_seconds=3e-3, data_seconds=1.5e-3, steps=10**6),
        Signs("a short run", step_seconds=0.1, data_seconds=0.05, steps=100),
        Signs("one .item() a step", counted=Tally.of([Account("syncs/load/a.py:3", 1, "times")]), micro_batches=4),
        Signs("surefoot's own", counted=Tally.of([Account("syncs/update/surefoot", 9, "times")]), micro_batches=2),
        Signs("no_sync", counted=NO_SYNC),
        Signs("no accumulation", counted=Tally.of([Account("backwards/all", 1, "times")])),
    ],
    ids=lambda signs: signs.where,
)  # fmt: skip
def test_clean_records_show_nothing(signs: Signs):
    assert diagnose(signs) == ()


def test_waiting_says_how_many_seconds_are_at_stake():
    (found,) = diagnose(Signs("train.py", step_seconds=1.0, data_seconds=0.4, steps=1000))
    assert found.seen == "40% of a step is spent waiting for data: 400 ms of 1 s, 6.7 min in 1,000 steps"


def test_what_ends_a_run_stands_before_what_costs_time():
    found = diagnose(Signs("train.py", 1.0, 0.6, 4, ONE_ITEM + REDUCED, KEPT))
    assert [finding.check for finding in found] == [
        "tensors-kept-from-step-to-step",
        "waiting-for-data",
        "gradients-reduced-in-every-micro-batch",
        "value-asked-in-every-micro-batch",
    ]


def test_what_a_check_says_too_is_said_once():
    checks = [Finding(name, "warning", "seen", "where", "why", "remedy") for name in ("kept-losses", "detached-loss")]
    assert said_once(checks, diagnose(Signs("train.py", kept=KEPT))) == (checks[1],)
    assert said_once(checks, diagnose(Signs("train.py"))) == tuple(checks)


def rows(held):
    from dataclasses import replace

    return [replace(log_row(step, loss=1.0), memory_bytes=each) for step, each in enumerate(held, 1)]


def test_growth_is_told_from_warming_up():
    assert memory_slope(rows([10**8 + 10**5 * step for step in range(400)])) == pytest.approx(10**5, rel=0.01)
    assert memory_slope(rows([10**8 + 10**6 * min(step, 80) for step in range(400)])) is None
    assert memory_slope(rows([10**8 + 10**6 * (step % 7) for step in range(400)])) is None
    assert memory_slope(rows([10**8 + 10**6 * step for step in range(100)])) is None
