"""A failure inside a check ends the checking and never the loop that is watched."""

from __future__ import annotations

import os
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import files
from pathlib import Path
from typing import Any

from surefoot.events.listener import Listener

RAISE = "SUREFOOT_RAISE"
"""The environment variable with which exceptions are raised all the same, for those who look for their cause."""
PACKAGE = Path(str(files("surefoot")))
_INSTALLED = tuple(sysconfig.get_path(each) for each in ("stdlib", "platlib", "purelib"))


class Failsafe:
    """Callbacks and listeners that a loop is given. After the first exception in one of them none is called again."""

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self.failure = ""
        """Why nothing is looked at any more, in words."""

    def callback(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A callback that raises nothing. It gives None once one has failed."""

        def tried(*args: object, **kwargs: object) -> Any:
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


_SKIPPED: ContextVar[list[str] | None] = ContextVar("skipped", default=None)
_RUNS = "checks/engine/rerun.py"
_THEIRS = ("torch/nn/modules/", "torch/utils/data/")
"""Below these files it is the user's model or data set that runs."""


@contextmanager
def noting_attempts() -> Iterator[list[str]]:
    """Collects what could not be tried while it is entered."""
    skipped: list[str] = []
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Tries something on a copy of a model or a data set. What cannot be tried is noted, and is no finding.

    A model may refuse what it was never meant for. An error of surefoot's own is raised with `SUREFOOT_RAISE`.
    """
    try:
        yield
    except Exception as error:
        if os.environ.get(RAISE) and _is_own(error):
            raise
        skipped = _SKIPPED.get()
        if skipped is not None:
            skipped.append(f"{what}: {type(error).__name__}: {str(error).partition(chr(10))[0]} ({_place(error)})")


def _is_own(error: Exception) -> bool:
    """Was it raised by a line of surefoot's own, or by torch without a model or data set of the user's in between?"""
    files = [frame.filename.replace(os.sep, "/") for frame in traceback.extract_tb(error.__traceback__)]
    if PACKAGE in Path(files[-1]).parents:
        return True
    first = next((place for place, file in enumerate(files) if PACKAGE in Path(file).parents), 0)
    called = [file for file in files[first:] if PACKAGE not in Path(file).parents or file.endswith(_RUNS)]
    return not any(file.endswith(_RUNS) or any(mark in file for mark in _THEIRS) for file in called) and all(
        map(_is_installed, called)
    )


def _is_installed(file: str) -> bool:
    """No file of the user's: one of an installed package, of Python itself, or none at all."""
    return file.startswith(("<", *_INSTALLED))


def _place(error: Exception) -> str:
    """The innermost line of surefoot's own that an error went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if PACKAGE in Path(frame.filename).parents:
            return f"{Path(frame.filename).relative_to(PACKAGE).as_posix()}, line {frame.lineno}"
    return "outside of surefoot"
