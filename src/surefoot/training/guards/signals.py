"""Signals: a request to stop takes effect after the step, not in the middle of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

_ASKED = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """A context that records the first SIGTERM or SIGINT in `received`. A second SIGINT interrupts as usual."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {each: signal.signal(each, self._note) for each in _ASKED}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
