"""Reads the Python stacks of another process with py-spy, which needs nothing in that process."""

from __future__ import annotations

import json
import linecache
import shutil
import subprocess
import sysconfig
from typing import Any, NamedTuple

from surefoot.errors import MissingPackage, RunError, installing
from surefoot.records.stuck import Frame
from surefoot.source.owners import is_users

SECONDS = 30


class ThreadStack(NamedTuple):
    """A thread and its functions, innermost first."""

    name: str
    number: int
    """As the kernel numbers it. The main thread has the number of its process."""
    frames: tuple[Frame, ...]


def stacks_of(pid: int, *, stopped: bool = False) -> list[ThreadStack]:
    """The threads of a process, its main one first. A process that is stopped already need not be paused."""
    command = [_py_spy(), "dump", "--json", "--pid", str(pid), *(["--nonblocking"] if stopped else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(f"py-spy did not read process {pid} within {SECONDS} s") from None
    if done.returncode:
        raise RunError(_refused(pid, done.stderr))
    threads = [_thread(each) for each in json.loads(done.stdout)]
    return sorted(threads, key=lambda each: each.number != pid)


def _thread(told: dict[str, Any]) -> ThreadStack:
    return ThreadStack(told["thread_name"] or "", told["os_thread_id"] or 0, tuple(map(_frame, told["frames"])))


def _frame(told: dict[str, Any]) -> Frame:
    file, line = told["filename"], told["line"]
    return Frame(
        function=told["name"],
        file=file,
        line=line,
        source=linecache.getline(file, line).strip(),
        user=is_users(file),
    )


def _py_spy() -> str:
    found = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if found is None:
        raise MissingPackage(f"stuck needs py-spy: {installing('stuck', 'py-spy')}")
    return found


def _refused(pid: int, said: str) -> str:
    if "ermission" in said or "EPERM" in said or "not permitted" in said:
        return (
            f"the system does not let you look into process {pid}\n"
            "run the command as the same user with sudo; a container needs --cap-add SYS_PTRACE"
        )
    last = said.strip().splitlines()[-1:] or ["it gave no reason"]
    return f"py-spy could not read process {pid}: {last[0]}"
