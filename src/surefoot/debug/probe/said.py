"""Said: the lines with numbers that a script prints, in place of its output."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any

from surefoot.debug.probe.order import Line
from surefoot.source.owners import is_users

NUMBER = re.compile(r"(?<![\w.@])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)(?!\w|\.\d)")
_MOST = 5000
"""Lines that are kept: of a script that prints more, the last."""


class Said(io.TextIOBase):
    """Takes the place of stdout and stderr. It keeps lines with numbers and prints nothing."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._open = ""
        self.buffer = io.BytesIO()

    def write(self, text: str) -> int:
        """Hears a part of a line, or several lines. A progress bar begins its line anew with a carriage return."""
        *ended, self._open = re.split(r"[\r\n]", self._open + text)
        for line in ended:
            self.hear(line)
        return len(text)

    def hear(self, line: str) -> None:
        """Keeps a line if there is a number in it."""
        numbers = tuple(float(each) for each in NUMBER.findall(line))
        if numbers:
            self.lines.append(Line(NUMBER.sub("#", line).strip(), numbers, users_line()))
            del self.lines[:-_MOST]

    def finish(self) -> None:
        """Hears a last line that has no end."""
        self.hear(self._open)
        self._open = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def reconfigure(self, **options: Any) -> None:
        """Nothing here has an encoding or a buffer to change."""

    def isatty(self) -> bool:
        """No terminal, so that libraries draw nothing."""
        return False

    def fileno(self) -> int:
        """The file for what is written past Python."""
        return 1


def users_line() -> str:
    """The innermost line of the user's that is running, as `file:line`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and is_users(file):
            return f"{os.path.abspath(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
