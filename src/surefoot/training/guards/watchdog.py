"""Watchdog: writes the stacks of all threads to a file if a step takes many times longer than usual."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from surefoot.errors import RunError
from surefoot.plain_files import open_to_append

if TYPE_CHECKING:
    from typing_extensions import Self


class Watchdog:
    """Call `beat` after every step. A step is reported once if it takes `times` the median and `least_seconds`.

    After twice that time, `give_up` is called if given.
    """

    def __init__(
        self,
        stacks: Path,
        alarm: Callable[[str], None],
        *,
        give_up: Callable[[str], None] | None = None,
        times: float = 20,
        least_seconds: float = 60,
    ) -> None:
        self.stacks, self.alarm, self.times, self.least_seconds = stacks, alarm, times, least_seconds
        self.give_up = give_up
        self._lasted: deque[float] = deque(maxlen=64)
        self._began, self._told = time.monotonic(), False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="surefoot-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def beat(self) -> None:
        """A step has ended."""
        now = time.monotonic()
        self._lasted.append(now - self._began)
        self._began, self._told = now, False

    def limit_seconds(self) -> float | None:
        """How long a step may take. None until three steps have been measured."""
        lasted = list(self._lasted)
        return max(self.least_seconds, self.times * median(lasted)) if len(lasted) >= 3 else None

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self.least_seconds / 4)):
            limit, lasted = self.limit_seconds(), time.monotonic() - self._began
            if limit is not None and lasted > limit and not self._told:
                self._told = True
                with suppress(OSError, RunError), open_to_append(self.stacks) as file:
                    faulthandler.dump_traceback(file, all_threads=True)
                self.alarm(self._said(lasted))
            elif limit is not None and lasted > 2 * limit and self.give_up is not None:
                self.give_up(self._said(lasted))
                return

    def _said(self, lasted: float) -> str:
        return f"a step has taken {lasted:.0f} s, {lasted / median(self._lasted):.0f} times the median"
