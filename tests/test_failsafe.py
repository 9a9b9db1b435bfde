"""Callbacks of surefoot hide its function mode while they run, each in its own thread, and always show it again."""

import threading

import torch
from torch.overrides import TorchFunctionMode

from surefoot.events import failsafe as module
from surefoot.events.failsafe import Failsafe
from surefoot.torch_inside.modes import only_function_mode


class Seeing(TorchFunctionMode):
    seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


def test_a_callback_in_another_thread_that_began_just_before_does_not_take_the_mode_away(monkeypatch):
    safe, begun, inside = Failsafe(on=True), threading.Event(), threading.Event()

    def clock():
        if threading.current_thread() is other:  # it has seen that no callback runs
            begun.set()
            assert inside.wait(10)
        return 0.0

    def own():
        inside.set()
        other.join(10)
        torch.ones(2)

    other = threading.Thread(target=safe.callback(lambda: None))
    monkeypatch.setattr(module.time, "thread_time", clock)
    with Seeing() as mode:
        safe.mode = mode
        other.start()
        assert begun.wait(10)
        safe.callback(own)()
        assert only_function_mode() is mode
    assert mode.seen == 0


def test_a_callback_that_runs_in_another_thread_does_not_show_the_mode_here():
    safe, begun, ends = Failsafe(on=True), threading.Event(), threading.Event()

    def long():
        begun.set()
        assert ends.wait(10)

    other = threading.Thread(target=safe.callback(long))
    with Seeing() as mode:
        safe.mode = mode
        other.start()
        assert begun.wait(10)
        safe.callback(lambda: torch.ones(2))()
        ends.set()
        other.join(10)
        assert only_function_mode() is mode
    assert mode.seen == 0
