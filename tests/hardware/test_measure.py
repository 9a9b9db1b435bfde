"""Measuring this machine: the best of several rounds; a busy machine leaves a note, a very busy one is refused."""

import time

import pytest

from surefoot.errors import WorldError
from surefoot.hardware import Datasheet
from surefoot.planning.timing.rounds import MOST_TIMES, Rounds
from surefoot.reports.console import as_text
from surefoot.reports.hardware import device_text


class Clock:
    """Seconds of one call after the other; this thread has a processor for a share of each."""

    def __init__(self, *calls: tuple[float, float]) -> None:
        self.calls, self.now, self.own, self.ran = [(0.0, 1.0), *calls], 0.0, 0.0, 0

    def run(self) -> None:
        seconds, share = self.calls[min(self.ran, len(self.calls) - 1)]
        self.now, self.own, self.ran = self.now + seconds, self.own + share * seconds, self.ran + 1

    def rounds(self, number: int) -> Rounds:
        return Rounds(number, clock=lambda: self.now, own_clock=lambda: self.own)


def test_an_idle_machine_takes_as_many_rounds_as_asked_and_needs_no_note():
    clock = Clock((0.3, 1.0), (0.2, 0.95), (0.4, 1.0))
    timed = clock.rounds(3)
    assert (timed.fastest("copies", clock.run), clock.ran, timed.notes()) == (0.2, 4, ())


def test_disturbed_rounds_are_repeated_and_the_best_counts():
    clock = Clock((0.9, 0.3), (0.9, 0.3), (0.2, 1.0), (0.8, 0.3))
    timed = clock.rounds(2)
    assert timed.fastest("copies", clock.run) == pytest.approx(0.2)
    assert clock.ran == 1 + MOST_TIMES * 2
    assert timed.notes() == ()


def test_a_busy_machine_leaves_a_note():
    clock = Clock((0.4, 0.5))
    timed = clock.rounds(2)
    timed.fastest("fp32 products", clock.run)
    assert timed.notes()[0].startswith("other programs ran: fp32 products had a processor for 50% of the time")


def test_a_figure_that_is_mostly_waiting_is_refused():
    with pytest.raises(WorldError, match=r"too busy .* 8 rounds of copies, .* nothing was saved; stop other programs"):
        Rounds(1).fastest("copies", lambda: time.sleep(0.02))  # time itself: none of it on a processor


def test_slow_machines_have_readable_rates():
    sheet = Datasheet("here", "x86_64", {}, 2**33, reached_flops={"fp32": 4.2e9}, memory_bandwidth=3.2e9, sources=())
    text = as_text(device_text(sheet))
    assert "4.20 GFLOP/s" in text
    assert "3.2 GB/s" in text
