"""Runs code of the user once more without letting it act: it can write no file, start no process and send nothing.

Python tells an audit hook of such acts before they happen, and a hook that raises prevents them. What a library does
below Python is not told.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_ACTS = (
    "os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv",
    "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system", "os.truncate", "os.unsetenv",
    "shutil.", "signal.pthread_kill", "socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto",
    "sqlite3.connect", "subprocess.Popen", "tempfile.",
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_harmless: set[int] = set()
"""The threads that may not act now."""


@contextmanager
def harmless() -> Iterator[None]:
    """Inside, an act of this thread raises `PermissionError` before it happens.

    Nothing is collected meanwhile: what an object does when it goes, such as a loader that ends its workers, is not an
    act of these lines and must not be prevented.
    """
    _listen()
    thread, collects = threading.get_ident(), gc.isenabled()
    gc.disable()
    _harmless.add(thread)
    try:
        yield
    finally:
        _harmless.discard(thread)
        if collects:
            gc.enable()


@cache
def _listen() -> None:
    sys.addaudithook(_heard)  # it cannot be removed; outside of `harmless` it returns at once


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if not _harmless or threading.get_ident() not in _harmless:
        return
    if event.startswith(_ACTS) or (event == "open" and int(args[2] or 0) & _WRITES):
        raise PermissionError(f"{event} while surefoot runs these lines again to explain an error")
