"""A failure inside surefoot ends the checking or the measuring, and never the loop that is watched."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from surefoot.events.listener import Listener

RAISE = "SUREFOOT_RAISE"
"""If this environment variable is set, exceptions inside surefoot are raised. Use it to debug a check."""
PACKAGE = Path(str(files("surefoot")))


class Failsafe:
    """Wraps callbacks and listeners. After the first exception in one of them, none is called again."""

    def __init__(self, *, on: bool, doing: str = "checking") -> None:
        self._on, self._doing = on, doing
        self.failure = ""
        """Why it stopped, as text; empty while it works."""

    def callback(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A callback that never raises. It returns None after any callback has failed."""

        def tried(*args: object, **kwargs: object) -> Any:
            if self.failure:
                return None
            try:
                return own(*args, **kwargs)
            except Exception as error:
                self.fail(error)

        return tried if self._on else own

    def listener(self, own: Listener) -> Listener:
        """A listener that never raises."""
        if not self._on:
            return own
        told = Listener()
        for name in vars(Listener):
            if not name.startswith("_"):
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
        if PACKAGE in Path(frame.filename).parents:
            return f"{Path(frame.filename).relative_to(PACKAGE).as_posix()}, line {frame.lineno}"
    return "outside of surefoot"
