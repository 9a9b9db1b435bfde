"""A probe that fails on a copy of a model or a data set is noted and skipped."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from surefoot.errors import first_line
from surefoot.events.failsafe import RAISE, place_of
from surefoot.source.owners import is_own, is_users

_SKIPPED: ContextVar[list[str] | None] = ContextVar("skipped", default=None)
_RUNS = "checks/engine/rerun.py"
_THEIRS = ("torch/nn/modules/", "torch/utils/data/")
"""Frames below these files run the user's model or data set."""


class NoRoom(Exception):
    """A device has too little memory for a probe. The scene has noted it."""


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
    except NoRoom:
        return
    except Exception as error:
        if os.environ.get(RAISE) and _is_own(error):
            raise
        skipped = _SKIPPED.get()
        if skipped is not None:
            skipped.append(f"{what}: {first_line(error)} ({place_of(error)})")


def _is_own(error: Exception) -> bool:
    """Did a line of surefoot's own raise it, or torch without a model or data set of the user's in between?"""
    frames = traceback.extract_tb(error.__traceback__)
    calls = [frame for frame in frames if frame.name != "__torch_function__"]  # it passes on what the model calls
    files = [frame.filename.replace(os.sep, "/") for frame in calls]
    if files[-1].endswith(_RUNS):
        return False  # it refuses a call that a copy cannot repeat
    if is_own(calls[-1].filename):
        return True
    if any(mark in file for file in files for mark in (_RUNS, *_THEIRS)):
        return False
    return not any(is_users(frame.filename) for frame in calls)
