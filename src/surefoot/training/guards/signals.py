"""Signals: a request to stop takes effect after the step, not in the middle of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from surefoot.errors import RankLost

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

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for each, handler in self._before.items():
            # torchrun sends SIGTERM to the ranks that are left. They end by themselves, and first say which was lost.
            if not (each == signal.SIGTERM and isinstance(error, RankLost)):
                signal.signal(each, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
