"""Guards: requests to stop, steps that hang, losses that jump."""

import os
import random
import signal
import threading
import time

import pytest

from surefoot.training.guards.signals import StopRequests
from surefoot.training.guards.spike import Spikes
from surefoot.training.guards.watchdog import Watchdog
from tests.waiting import until


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_the_first_request_is_remembered(asked):
    with StopRequests() as stop:
        os.kill(os.getpid(), asked)
        assert stop.received == asked.name


def test_a_second_interrupt_interrupts():
    with StopRequests():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_come_back_and_other_threads_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequests():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    seen = []

    def elsewhere():
        with StopRequests() as stop:
            seen.append(stop.received)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_step_that_hangs_is_reported_once_with_every_stack(tmp_path):
    alarms = []
    with Watchdog(tmp_path / "stacks.txt", alarms.append, times=5, least_seconds=0.2) as watchdog:
        for _ in range(4):
            watchdog.beat()
        until(lambda: alarms)
        time.sleep(0.4)  # time itself: a second alarm would come in it
        watchdog.beat()
    assert len(alarms) == 1
    assert "a step has taken" in alarms[0]
    assert "test_a_step_that_hangs" in (tmp_path / "stacks.txt").read_text()


def test_usual_steps_raise_no_alarm(tmp_path):
    alarms = []
    with Watchdog(tmp_path / "stacks.txt", alarms.append, times=50, least_seconds=0.2) as watchdog:
        for _ in range(20):
            time.sleep(0.02)  # time itself: steps that take as long as usual
            watchdog.beat()
    assert not alarms
    assert not (tmp_path / "stacks.txt").exists()


def falling(count: int) -> list[float]:
    generator = random.Random(0)
    return [4 * 0.99**step + generator.gauss(0, 0.05) for step in range(count)]


def test_a_jump_is_a_spike_and_the_usual_noise_is_not():
    spikes = Spikes()
    assert not any(spikes.see(loss) for loss in falling(500))
    assert spikes.see(3.0)
    assert spikes.see(3.0)  # a spike does not become the usual
    assert not spikes.see(falling(500)[-1])


def test_before_enough_losses_nothing_is_a_spike():
    spikes = Spikes([2.0] * 15)
    assert not spikes.see(100.0)
    assert Spikes([2.0] * 16).see(100.0)


def test_losses_that_stand_still_may_move_a_little():
    assert not Spikes([2.0] * 64).see(2.3)
    assert Spikes([2.0] * 64).see(2.5)
