"""Runs a command in a session of its own, and ends it with its children after some time or when its caller is gone.

`python -I limited.py SECONDS COMMAND...`. The caller keeps stdin open as long as it wants an answer. This is a process
of its own because then even a caller that is killed leaves nothing behind. It imports the standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import IO

TOO_LONG = 124
"""The exit code after the limit of time, as that of `timeout`."""
MOST_RECORD, MOST_SAID = 64 * 2**20, 2**16
"""How many bytes of stdout and of stderr are kept: the last ones. A script may print without end."""
_GRACE = 2.0
"""Seconds to wait for pipes that a process outside of the session still holds."""


class Tail(Thread):
    """Reads a pipe to its end and keeps its last bytes."""

    def __init__(self, pipe: IO[bytes], most: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._most, self.kept = pipe, most, bytearray()
        self.start()

    def run(self) -> None:
        while read := os.read(self._pipe.fileno(), 2**16):
            self.kept += read
            if len(self.kept) > 2 * self._most:
                del self.kept[: -self._most]


def main(seconds: float, command: Sequence[str]) -> int:
    """Runs the command. What it printed follows at the end. Returns its exit code, or 124 after the limit of time."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    assert child.stdout is not None
    assert child.stderr is not None
    tails = Tail(child.stdout, MOST_RECORD), Tail(child.stderr, MOST_SAID)
    Thread(target=_end_with_caller, args=(child,), daemon=True).start()
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        code = TOO_LONG
    end(child)
    for tail, most, stream in zip(tails, (MOST_RECORD, MOST_SAID), (sys.stdout, sys.stderr), strict=True):
        tail.join(_GRACE)
        stream.buffer.write(tail.kept[-most:])
        stream.flush()
    return code if code >= 0 else 128 - code


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a process and every process of its session's group."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        pass


def _end_with_caller(child: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()
    end(child)


if __name__ == "__main__":
    code = main(float(sys.argv[1]), sys.argv[2:])
    os._exit(code)  # a thread still waits for the caller
