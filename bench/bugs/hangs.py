"""Hangs: starts a script on two ranks with torchrun, and waits until none of its processes works any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from surefoot.debug.hangs.processes import tree_of
from surefoot.errors import RunError

RANKS = 2
TORCHRUN = ("-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone")
QUIET_SECONDS = 3.0
WORK = 0.1
"""The share of one core that all processes together may use while they stand still: launcher and loaders poll."""


@contextmanager
def hanging(file: Path, *, timeout: float = 120) -> Iterator[int]:
    """The pid of torchrun, once its ranks stand still. All that it started is killed in the end."""
    with (file.parent / "ranks.out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *TORCHRUN, str(file)], cwd=file.parent, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait(process, time.monotonic() + timeout)
        yield process.pid
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all below it. torchrun puts its ranks into sessions of their own."""
    with suppress(RunError):
        for each in tree_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], ends: float) -> None:
    """Returns when the ranks have started and have hardly worked for some seconds, or when the script has ended."""
    while time.monotonic() < ends and process.poll() is None:
        before = _worked(process.pid)
        time.sleep(QUIET_SECONDS)
        if len(before) > RANKS and _more(before, _worked(process.pid)) < WORK * QUIET_SECONDS:
            return


def _worked(pid: int) -> dict[int, float]:
    with suppress(RunError):
        return {each.pid: each.cpu_seconds for each in tree_of(pid)}
    return {}


def _more(before: dict[int, float], after: dict[int, float]) -> float:
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
