"""Finds which line of user code is running."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

_NOT_THE_USER = ("torch", "surefoot", "contextlib", "functools", "runpy")
DRIVING = ("surefoot.ways", "surefoot.training.loop")
"""Packages and files whose loops are surefoot's own: a line in them is no line of the user's."""
_NEAR = 32


def frames() -> Iterator[FrameType]:
    """What is running, from the one who asks outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def near_frames() -> Iterator[FrameType]:
    """Those of them that are not far out, where what a loop has in sight is looked for."""
    return islice(frames(), _NEAR)


def variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame. Before Python 3.13 a function's frame keeps what it has told until it is cleared."""
    found = frame.f_locals
    copied = dict(found)
    if type(found) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copied


def caller() -> str:
    """The line of user code that is running, as `file.py:12`: the nearest frame outside installed packages.

    Empty when a way drives the loop: then the line is surefoot's own.
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
    """Does this frame run code of the user's, and not of an installed package?"""
    file = frame.f_code.co_filename
    return not _is_known(frame) and "site-packages" not in file and not file.startswith("<")


def user_lines(most: int = 6) -> tuple[tuple[str, int], ...]:
    """The lines of user code that are running, as file and number, from the inside."""
    lines = ((frame.f_code.co_filename, frame.f_lineno) for frame in frames() if is_user(frame))
    return tuple(islice(lines, most))


def user_files() -> set[str]:
    """The files of user code that is running, and of user code that was imported."""
    running = {frame.f_code.co_filename for frame in frames() if is_user(frame)}
    known = {*_NOT_THE_USER, *sys.stdlib_module_names}
    named = [(name, getattr(module, "__dict__", {}).get("__file__")) for name, module in list(sys.modules.items())]
    imported = {str(file) for name, file in named if file and name.split(".")[0] not in known}
    return running | {file for file in imported if file.endswith(".py") and "site-packages" not in file}


def asked_by_user() -> bool:
    """Has user code called what called this, and not a framework? What surefoot puts between them does not count."""
    outside = (frame for frame in frames() if not _module(frame).startswith("surefoot."))
    return is_user(next(outside))


def asked_inside(package: str) -> bool:
    """Does a package do what is done now for itself, inside of what user code has called?"""
    for frame in frames():
        if _module(frame).startswith(package):
            return True
        if is_user(frame):
            return False
    return False


def site() -> int:
    """The very call in user code that is running, told apart from others on its line."""
    return next((hash((frame.f_code, frame.f_lasti)) for frame in frames() if not _is_known(frame)), 0)


def reading_function() -> str:
    """The name of the user's function that is running."""
    return next((frame.f_code.co_name for frame in frames() if is_user(frame)), "")


def in_scheduler() -> bool:
    """Is a scheduler of learning rates running another one's code: its first step, or one inside a chain?"""
    for frame in islice(frames(), 12):
        if _module(frame) == "torch.optim.lr_scheduler":
            return True
        if not _is_known(frame) and frame.f_code.co_name != "step":  # a class of the user's may step as it likes
            return False
    return False


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _is_known(frame: FrameType) -> bool:
    return _module(frame).split(".")[0] in _NOT_THE_USER
