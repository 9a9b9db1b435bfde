"""Stops watching in forked processes, for example DataLoader workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

_entered: list[tuple[int, ExitStack]] = []
"""With the thread's id, because a mode belongs to one thread."""


@contextmanager
def only_here(mode: AbstractContextManager[Any]) -> Iterator[None]:
    """Enters a mode. A process forked inside leaves it at once."""
    with ExitStack() as stack:
        stack.enter_context(mode)
        entry = threading.get_ident(), stack
        _entered.append(entry)
        try:
            yield
        finally:
            if entry in _entered:
                _entered.remove(entry)


def _leave() -> None:
    for thread, stack in reversed(_entered):
        if thread == threading.get_ident():
            stack.close()
    _entered.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_leave)
