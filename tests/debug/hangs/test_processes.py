"""What the kernel counts of a process: how often it goes to sleep in the time that it had a core."""

import os
import signal
import subprocess
import time

import pytest

from surefoot.debug.hangs.processes import PROC, Wakes, settle, wakes
from surefoot.debug.hangs.stuck import MOST_POLLS_PER_SECOND
from tests.waiting import until


def test_a_loop_that_works_sleeps_often_in_the_time_that_it_has_a_core():
    alone = Wakes(1900, 103.0).per_second(Wakes(100, 101.0))
    crowded = Wakes(115, 101.1).per_second(Wakes(100, 101.0))  # 15 times in a second, nine tenths of it in a queue
    assert alone == pytest.approx(900)
    assert crowded == pytest.approx(150)
    assert crowded > MOST_POLLS_PER_SECOND


@pytest.mark.skipif(
    not (PROC / "self/schedstat").exists(), reason="this kernel does not count how long a process queues"
)
def test_time_in_the_queue_for_a_core_does_not_count():
    core = min(os.sched_getaffinity(0))
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        for each in busy:
            os.sched_setaffinity(each.pid, {core})
        time.sleep(0.2)  # time itself: both have come to share the core
        before, start = [wakes(each.pid) for each in busy], time.monotonic()
        time.sleep(1.5)  # time itself: what the kernel counts in it
        after, seconds = [wakes(each.pid) for each in busy], time.monotonic() - start
    finally:
        for each in busy:
            each.kill()
            each.wait()
    free = [late.free_seconds - early.free_seconds for early, late in zip(before, after, strict=True)]
    assert free[0] + free[1] < 1.4 * seconds  # they share one core


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE") or not PROC.exists(), reason="only Linux gives the last turn")
def test_a_sleeper_that_was_stopped_for_a_look_sleeps_again_before_its_sleeps_are_counted():
    core = min(os.sched_getaffinity(0))
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        os.sched_setaffinity(busy.pid, {core})
        os.sched_setaffinity(sleeper.pid, {core})
        os.sched_setscheduler(sleeper.pid, os.SCHED_IDLE, os.sched_param(0))  # its turn comes late
        until(lambda: state_of(sleeper.pid) == "S")
        os.kill(sleeper.pid, signal.SIGSTOP)
        until(lambda: state_of(sleeper.pid) == "T")
        os.kill(sleeper.pid, signal.SIGCONT)
        settle(sleeper.pid)
        before = wakes(sleeper.pid).sleeps
        time.sleep(0.5)  # time itself: the sleeper goes on sleeping
        assert wakes(sleeper.pid).sleeps == before
        settle(busy.pid)  # which never sleeps: it ends all the same
    finally:
        for each in (busy, sleeper):
            each.kill()
            each.wait()


def state_of(pid: int) -> str:
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
