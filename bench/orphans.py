"""orphans: processes that outlive their killed parent; the process that adopts them can count them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 1.0
"""The kernel's signal takes a moment. torch's own workers look after their parent every five seconds."""


def adopt() -> None:
    """Makes this process the parent of its descendants whose own parent dies. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def orphans() -> int:
    """How many descendants live on a second after the death of their parent. They are ended here.

    Call it when this process has no other children.
    """
    if sys.platform != "linux":
        return 0
    until = time.monotonic() + GRACE_SECONDS
    while (left := _living()) and time.monotonic() < until:
        time.sleep(0.005)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(left)


def _living() -> list[int]:
    """The children of this process, after those that are dead have been buried."""
    children = [int(each) for task in Path("/proc/self/task").iterdir() for each in _read(task / "children").split()]
    return [pid for pid in children if os.waitpid(pid, os.WNOHANG) == (0, 0)]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # a thread that has ended
        return ""
