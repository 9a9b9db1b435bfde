"""A real terminal in place of standard output, for tests of what a terminal is sent."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What acts on a terminal, or makes text look different from what it is."""


@contextmanager
def terminal(monkeypatch) -> Iterator[list[str]]:
    """Fills the list with what a terminal was sent, without the carriage returns that it adds to line ends itself."""
    ours, theirs = os.openpty()
    sent = list[str]()
    with monkeypatch.context() as changed, open(theirs, "w", encoding="utf-8") as out:
        changed.setattr(sys, "stdout", out)
        yield sent
    sent.append(b"".join(_left(ours)).decode().replace("\r\n", "\n"))
    os.close(ours)


def _left(end: int) -> Iterator[bytes]:
    """Everything up to the end, which Linux reports as an error: the other side has closed."""
    try:
        while part := os.read(end, 1 << 16):
            yield part
    except OSError:
        return
