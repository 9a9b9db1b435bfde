"""Alarms while a run goes on: each when it begins, and not before."""

from dataclasses import replace

from surefoot.guards.drift import CREEPING, WINDOW, Drift
from tests.reports.test_text import log_row


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
