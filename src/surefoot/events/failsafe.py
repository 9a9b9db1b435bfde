"""A failure inside surefoot ends the checking or the measuring, and never the loop that is watched."""

from __future__ import annotations

import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from surefoot.events.listener import Listener, hears
from surefoot.source.owners import OWN, is_own
from surefoot.torch_inside.modes import hide_function_mode, show_function_mode

RAISE = "SUREFOOT_RAISE"
"""If this environment variable is set, exceptions inside surefoot are raised. Use it to debug a check."""

_AROUND = 4e-6
"""Seconds that torch and Python take to reach a callback and to return from it, on a core of 2.5 GHz."""


class _Here(threading.local):
    """Of each thread, as the function modes are: is a callback running, and has it hidden the mode?"""

    running = hides = False


class Failsafe:
    """Wraps callbacks and listeners. After the first exception in one of them, none is called again.

    It also adds up the seconds that they take, for a budget.
    """

    def __init__(self, *, on: bool, doing: str = "checking") -> None:
        self._on, self._doing = on, doing
        self.failure = ""
        """Why it stopped, as text; empty while it works."""
        self.seconds = 0.0
        """The CPU seconds that callbacks have taken so far. On a busy machine they are those of an idle one."""
        self.mode: Any = None
        """A function mode that does not see what callbacks do: seeing takes longer than most of what they do."""
        self.aside: Callable[[], AbstractContextManager[None]] | None = None
        """Entered around the callbacks: under a memory limit, what they allocate is not the training's."""
        self._here = _Here()

    def callback(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A callback that never raises. It returns None after any callback has failed."""

        def tried(*args: object, **kwargs: object) -> Any:
            if self.failure:
                return None
            here = self._here
            if here.running:  # inside another one, which is timed
                return self._try(own, *args, **kwargs)
            here.running, began = True, time.thread_time()
            here.hides = self.mode is not None and hide_function_mode(self.mode)
            try:
                if self.aside is None:
                    return own(*args, **kwargs)
                with self.aside():
                    return own(*args, **kwargs)
            except Exception as error:
                self.fail(error)
            finally:
                self.show()
                here.running = False
                self.seconds += time.thread_time() - began + _AROUND

        return tried if self._on else own

    def show(self) -> None:
        """Ends the hiding of the mode, for example because the mode is about to be exited."""
        if self._here.hides:
            self._here.hides = False
            show_function_mode(self.mode)

    def _try(self, own: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        try:
            return own(*args, **kwargs)
        except Exception as error:
            self.fail(error)

    def listener(self, own: Listener, only: Set[str] | None = None) -> Listener:
        """A listener that never raises. It hears all events, or `only` these."""
        if not self._on and only is None:
            return own
        told = Listener()
        for name in vars(Listener) if only is None else only & vars(Listener).keys():
            if not name.startswith("_") and hears(own, name):
                setattr(told, name, self.callback(getattr(own, name)))
        return told

    def fail(self, error: Exception) -> None:
        """Stops because of this error and warns. Raises the error if the failsafe is off."""
        if not self._on or os.environ.get(RAISE):
            raise error
        if not self.failure:
            self.failure = f"{type(error).__name__}: {error} ({place_of(error)})"
            said = f"surefoot stopped {self._doing}: {self.failure}. Your script continues."
            warnings.warn(said, RuntimeWarning, stacklevel=2)


def place_of(error: Exception) -> str:
    """The innermost line of surefoot that the error passed through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return f"{Path(frame.filename).relative_to(OWN).as_posix()}, line {frame.lineno}"
    return "outside of surefoot"
