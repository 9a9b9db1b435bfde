"""Copies of a script's last evaluation: the process forks as it begins, and each copy goes on with one thing changed.

Nobody knows which evaluation is the last before the script ends. So at each one a copy is made that sleeps; when the
script has ended, the last one wakes up and makes the others.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import torch

from surefoot.world import cuda

POLL_SECONDS = 0.005
LONGEST_SECONDS = 120.0
"""A copy that takes longer is stopped: a copied process may wait for a thread that was not copied."""


class Copies:
    """Makes the copies. `number` is which of them this process is; None for the script's own run."""

    def __init__(self, count: int, cpu_seconds: float) -> None:
        self.number: int | None = None
        self.refused = ""
        """Why no copies were made."""
        self._count, self._seconds = count, cpu_seconds
        self._sleeper: tuple[int, int] | None = None
        self._made = count == 0

    def hold(self) -> None:
        """Makes a copy that sleeps until it is woken. In copies that were made of that one, this returns too."""
        if self._made or self._is_refused():
            return
        self._forget()
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(read)
            self._sleeper = child, write
            return
        os.close(write)
        self._sleeper = None
        if os.read(read, 1) != b"g":
            os._exit(0)
        self.make()
        if self.number is None:
            os._exit(0)

    def make(self) -> None:
        """Makes the copies now, one after the other. In each of them, this returns with its `number`."""
        if self._made or self._is_refused():
            return
        self._made = True
        self._forget()
        for number in range(self._count):
            spent = os.times()
            if spent.children_user + spent.children_system > self._seconds:
                self.refused = f"only {number} of {self._count} copies were made, since they took long"
                return
            child = os.fork()
            if not child:
                self.number = number
                torch.set_num_threads(1)
                return
            _wait(child)

    def end(self) -> None:
        """The script has ended: the copy of its last evaluation wakes up, and this waits for it."""
        if self._sleeper is None:
            return
        child, write = self._sleeper
        os.write(write, b"g")
        os.close(write)
        os.waitpid(child, 0)
        self._sleeper, self._made = None, True

    def _is_refused(self) -> bool:
        if cuda.has_started():
            self.refused = "CUDA has started, and a process that uses it cannot be copied"
        return bool(self.refused)

    def _forget(self) -> None:
        if self._sleeper is not None:
            child, write = self._sleeper
            os.close(write)
            os.waitpid(child, 0)
            self._sleeper = None


def _wait(child: int) -> None:
    """Waits for a copy, but not forever."""
    until = time.monotonic() + LONGEST_SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(POLL_SECONDS)
