"""Finds the processes of a training: a process and all that it started, as Linux lists them."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from surefoot.errors import RunError

PROC = Path("/proc")
SETTLING_SECONDS = 2.0
"""The longest wait for a process that waits for a core."""
MOMENT = 0.02
"""A process that works for longer than this does not go back to sleep. The kernel counts in hundredths of a second."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Process(NamedTuple):
    """A process as the kernel sees it."""

    pid: int
    parent: int
    state: str
    """One letter: R runs, S sleeps, D waits for a disk, T is stopped, Z has ended."""
    cpu_seconds: float


def tree_of(pid: int) -> list[Process]:
    """A process and all below it. If it is one of several ranks, those of the process that started all of them."""
    if not (PROC / "self/stat").exists():
        raise RunError("stuck reads /proc, which Linux has and this system does not")
    every = {each.pid: each for each in map(_read, _pids()) if each is not None}
    if pid not in every:
        raise RunError(f"there is no process {pid}; `ps aux | grep python` lists those that run")
    while _is_rank(pid) and every[pid].parent in every and (_is_rank(every[pid].parent) or _starts_ranks(pid, every)):
        pid = every[pid].parent
    found, left = [], [pid]
    while left:
        found.append(every[left.pop()])
        left += sorted((each.pid for each in every.values() if each.parent == found[-1].pid), reverse=True)
    return found


def is_python(pid: int) -> bool:
    """Whether it runs Python."""
    try:
        return "python" in os.path.basename(os.readlink(PROC / str(pid) / "exe"))
    except OSError:
        return False


def variable_of(pid: int, name: str) -> str | None:
    """An environment variable that the process was started with."""
    try:
        text = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    found = [each for each in text.split(b"\0") if each.startswith(f"{name}=".encode())]
    return found[0].split(b"=", 1)[1].decode(errors="replace") if found else None


def kernel_waits(pid: int) -> dict[int, str]:
    """The kernel's function that each thread sleeps in. Empty for one that runs, or if the kernel does not say."""
    return {int(each.name): _kernel_wait(each) for each in _tasks(pid)}


def _tasks(pid: int) -> list[Path]:
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:  # it has ended
        return []


def _kernel_wait(task: Path) -> str:
    try:
        name = (task / "wchan").read_text()
    except OSError:
        return ""
    return "" if name == "0" else name


class Wakes(NamedTuple):
    """How often a main thread has gone to sleep so far, and the seconds in which no lack of cores kept it from that."""

    sleeps: int
    free_seconds: float

    def per_second(self, before: Wakes) -> float:
        """On a machine with too few cores, a loop that works goes to sleep as rarely as one that polls."""
        return (self.sleeps - before.sleeps) / max(self.free_seconds - before.free_seconds, 1e-3)


def wakes(pid: int) -> Wakes:
    """Those of a process until now."""
    return Wakes(_sleeps(pid), time.monotonic() - _queued_seconds(pid))


def settle(pid: int) -> None:
    """Waits until the main thread, which py-spy has just stopped, sleeps again or has worked for a moment.

    Its return to sleep counts as one more. On a busy machine it comes only after py-spy has ended, and would be taken
    for the process's own.
    """
    worked, end = cpu_seconds(pid), time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < end:
        process = _read(pid)
        if process is None or process.state not in "Rt" or process.cpu_seconds - worked > MOMENT:
            return
        time.sleep(0.002)


def _sleeps(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    return int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.MULTILINE)[0])


def _queued_seconds(pid: int) -> float:
    """How long the main thread waited for a core; 0 where the kernel does not count it."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def cpu_seconds(pid: int) -> float:
    """What the process has worked so far; 0 if it has ended."""
    found = _read(pid)
    return found.cpu_seconds if found else 0.0


def _starts_ranks(pid: int, every: dict[int, Process]) -> bool:
    parent = every[pid].parent
    return sum(each.parent == parent and _is_rank(each.pid) for each in every.values()) > 1


def _is_rank(pid: int) -> bool:
    return variable_of(pid, "RANK") is not None


def _pids() -> list[int]:
    return [int(each.name) for each in PROC.iterdir() if each.name.isdigit()]


def _read(pid: int) -> Process | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a name in brackets stands before, and may hold anything
    return Process(pid, int(fields[1]), fields[0], (int(fields[11]) + int(fields[12])) / _TICKS)
