"""Waits for a condition, up to a deadline: a machine that is busy takes longer, and no test is wrong for it."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
SECONDS = 300.0
"""Far more than anything here takes: a test that reaches it has failed."""


def until(
    condition: Callable[[], T],
    *,
    seconds: float = SECONDS,
    pause: float = 0.01,
    process: subprocess.Popen | None = None,
    output: Path | None = None,
) -> T:
    """Returns what the condition is once it is true. Fails after these seconds, or if the process ends before."""
    deadline = time.monotonic() + seconds
    while True:
        ended = (
            process is not None and process.poll() is not None
        )  # asked first: its last act may be what is waited for
        if found := condition():
            return found
        printed = output.read_text() if output else ""
        assert not ended, f"the process has ended before; {printed}"
        assert time.monotonic() < deadline, f"{condition.__qualname__} is not true after {seconds:g} s; {printed}"
        time.sleep(pause)


def text_in(file: Path) -> str:
    """Waits until another process has written into a file, and returns what."""
    return until(lambda: file.exists() and file.read_text())


def has_ended(pid: int) -> bool:
    """Is a process gone? A zombie counts: nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
