"""Finds which line of user code is running."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType

from surefoot.source.owners import DRIVING, owner

_NOT_THE_USER = ("torch", "surefoot", "contextlib", "functools", "runpy")
_NEAR = 32
_RUN_BY_THE_USER = ("user", "python")
"""What Python's own library calls, user code calls through it: `copy.deepcopy(model)`."""


def frames() -> Iterator[FrameType]:
    """The running frames, from the caller outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def near_frames() -> Iterator[FrameType]:
    """The innermost running frames: near enough to search for a loop's variables."""
    return islice(frames(), _NEAR)


def caller() -> str:
    """The running line of user code, as `file.py:12`: the nearest frame outside installed packages.

    Empty if surefoot's own loop is running.
    """
    nearest = ""
    for frame in frames():
        if _module(frame).startswith(DRIVING):
            return ""
        if not _is_known(frame):
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            nearest = nearest or line
            if is_user(frame):
                return line
    return nearest


def is_user(frame: FrameType) -> bool:
    """Does this frame run user code, not code of an installed package?"""
    return not _is_known(frame) and owner(frame.f_code.co_filename) in _RUN_BY_THE_USER


def raised_at(error: BaseException) -> tuple[str, int] | None:
    """The innermost line that an error passed through outside torch and surefoot, if there is one."""
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_known(frame) and not frame.f_code.co_filename.startswith("<")
    ]
    return places[-1] if places else None


def nearest_line() -> tuple[str, int] | None:
    """The innermost running line of user code, as file and line number. None if surefoot's own loop is running."""
    for frame in frames():
        if _module(frame).startswith(DRIVING):
            return None
        if is_user(frame):
            return frame.f_code.co_filename, frame.f_lineno
    return None


def user_lines(most: int = 6) -> tuple[tuple[str, int], ...]:
    """The running lines of user code, innermost first, as file and line number."""
    lines = ((frame.f_code.co_filename, frame.f_lineno) for frame in frames() if is_user(frame))
    return tuple(islice(lines, most))


def library_call() -> tuple[tuple[str, int], str]:
    """The running line of user code, and the function of an installed package that it calls: `lightning Trainer.fit`.

    The function is empty if user code runs without a package in between.
    """
    called = ""
    for frame in frames():
        if is_user(frame):
            return (frame.f_code.co_filename, frame.f_lineno), called
        if owner(frame.f_code.co_filename) == "installed" and not _is_known(frame):
            called = f"{_module(frame).split('.')[0]} {_qualified(frame)}"
    return ("", 0), ""


def user_files() -> set[str]:
    """The files of running and of imported user code."""
    running = {frame.f_code.co_filename for frame in frames() if is_user(frame)}
    known = {*_NOT_THE_USER, *sys.stdlib_module_names}
    named = [(name, getattr(module, "__dict__", {}).get("__file__")) for name, module in list(sys.modules.items())]
    imported = {str(file) for name, file in named if file and name.split(".")[0] not in known}
    return running | {file for file in imported if file.endswith(".py") and owner(file) in _RUN_BY_THE_USER}


def asked_by_user() -> bool:
    """Did user code, not a framework, make this call? surefoot's own frames do not count."""
    outside = (frame for frame in frames() if not _module(frame).startswith("surefoot."))
    return is_user(next(outside))


def asked_inside(package: str) -> bool:
    """Does a package make this call for itself, inside a call that user code made?"""
    for frame in frames():
        if _module(frame).startswith(package):
            return True
        if is_user(frame):
            return False
    return False


def site() -> int:
    """Identifies the running call in user code, even among several calls on one line."""
    return next((hash((frame.f_code, frame.f_lasti)) for frame in frames() if not _is_known(frame)), 0)


def reading_function() -> str:
    """The name of the running user function."""
    return next((frame.f_code.co_name for frame in frames() if is_user(frame)), "")


def library_functions() -> str:
    """The names of the functions of installed packages that run inside the nearest line of user code."""
    names = []
    for frame in frames():
        if is_user(frame):
            break
        if owner(frame.f_code.co_filename) == "installed" and not _is_known(frame):
            names.append(_qualified(frame))
    return " ".join(names)


def in_scheduler() -> bool:
    """Is a learning rate scheduler stepping itself: its first step, or a step inside a chain of schedulers?"""
    for frame in islice(frames(), 12):
        if _module(frame) == "torch.optim.lr_scheduler":
            return True
        if not _is_known(frame) and frame.f_code.co_name != "step":  # a user's class may override `step`
            return False
    return False


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _is_known(frame: FrameType) -> bool:
    return _module(frame).split(".")[0] in _NOT_THE_USER


def _qualified(frame: FrameType) -> str:
    """The name of a frame's function, with its class where Python keeps it (3.11 and newer)."""
    return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
