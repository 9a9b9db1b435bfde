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
"""If this environment variable is set, exceptions inside checks are raised. Use it to debug a check."""
PACKAGE = Path(str(files("surefoot")))
_INSTALLED = tuple(sysconfig.get_path(each) for each in ("stdlib", "platlib", "purelib"))


class Failsafe:
    """Wraps callbacks and listeners. After the first exception in one of them, none is called again."""

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self.failure = ""
        """Why checking stopped, as text; empty while it works."""

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
        """Stops checking because of this error and warns. Raises the error if the failsafe is off."""
        if not self._on or os.environ.get(RAISE):
            raise error
        if not self.failure:
            self.failure = f"{type(error).__name__}: {error} ({_place(error)})"
            warnings.warn(f"surefoot looks no more: {self.failure}. The script goes on.", RuntimeWarning, stacklevel=2)


_SKIPPED: ContextVar[list[str] | None] = ContextVar("skipped", default=None)
_RUNS = "checks/engine/rerun.py"
_THEIRS = ("torch/nn/modules/", "torch/utils/data/")
"""Frames below these files run the user's model or data set."""


@contextmanager
def noting_attempts() -> Iterator[list[str]]:
    """Collects the probes that failed inside this block."""
    skipped: list[str] = []
    token = _SKIPPED.set(skipped)
    try:
        yield skipped
    finally:
        _SKIPPED.reset(token)


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Probes a copy of a model or a data set. A probe that fails is noted, and is not a finding.

    A model may reject unusual inputs. An error in surefoot's own code is raised if `SUREFOOT_RAISE` is set.
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
    """Did a line of surefoot's own raise it, or torch without a model or data set of the user's in between?"""
    frames = traceback.extract_tb(error.__traceback__)
    calls = [frame for frame in frames if frame.name != "__torch_function__"]  # it passes on what the model calls
    files = [frame.filename.replace(os.sep, "/") for frame in calls]
    if files[-1].endswith(_RUNS):
        return False  # it refuses a call that a copy cannot repeat
    if PACKAGE in Path(files[-1]).parents:
        return True
    if any(mark in file for file in files for mark in (_RUNS, *_THEIRS)):
        return False
    return all(_is_installed(file) for file in files if PACKAGE not in Path(file).parents)


def _is_installed(file: str) -> bool:
    """Is this a file of Python or an installed package, or no file at all, instead of the user's?"""
    return file.startswith(("<", *_INSTALLED))


def _place(error: Exception) -> str:
    """The innermost line of surefoot that the error passed through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if PACKAGE in Path(frame.filename).parents:
            return f"{Path(frame.filename).relative_to(PACKAGE).as_posix()}, line {frame.lineno}"
    return "outside of surefoot"
