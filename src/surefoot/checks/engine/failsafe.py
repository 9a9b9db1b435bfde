"""Spared: what goes wrong in watching ends the watching, and not the loop that is watched."""

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
"""The environment variable with which exceptions are raised all the same, for those who look for their cause."""
PACKAGE = Path(str(files("surefoot")))


class Spared:
    """Callbacks and listeners that a loop is given. After the first exception in one of them none is called again."""

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self.failure = ""
        """Why nothing is looked at any more, in words."""

    def callback(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A callback that raises nothing. It gives None once one has failed."""

        def tried(*args: Any, **kwargs: Any) -> Any:
            if self.failure:
                return None
            try:
                return own(*args, **kwargs)
            except Exception as error:
                self.fail(error)

        return tried if self._on else own

    def listener(self, own: Listener) -> Listener:
        """A listener that raises nothing."""
        if not self._on:
            return own
        told = Listener()
        for name in vars(Listener):
            if not name.startswith("_"):
                setattr(told, name, self.callback(getattr(own, name)))
        return told

    def fail(self, error: Exception) -> None:
        """Looks no more because of this error, and says so; raises it where errors are not spared."""
        if not self._on or os.environ.get(RAISE):
            raise error
        if not self.failure:
            self.failure = f"{type(error).__name__}: {error} ({_place(error)})"
            warnings.warn(f"surefoot looks no more: {self.failure}. The script goes on.", RuntimeWarning, stacklevel=2)


def _place(error: Exception) -> str:
    """The innermost line of surefoot's own that an error went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if PACKAGE in Path(frame.filename).parents:
            return f"{Path(frame.filename).relative_to(PACKAGE).as_posix()}, line {frame.lineno}"
    return "outside of surefoot"
