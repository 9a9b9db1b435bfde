"""A lock on a folder: one process at a time, and none that is dead."""

from __future__ import annotations

import json
import os
import socket
import weakref
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from surefoot.errors import RunError
from surefoot.records.codec import from_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Owner:
    """A process that cannot be taken for another: pids are used again, boots and start times are not."""

    pid: int
    host: str
    boot: str
    namespace: str
    started: str
    since: str

    @classmethod
    def current(cls) -> Owner:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), _boot(), _namespace(), _started(os.getpid()) or "", now)

    def is_this_process(self) -> bool:
        return replace(self, since="") == replace(Owner.current(), since="")

    def is_alive_here(self) -> bool:
        """Whether it runs on this machine, as seen from here. Of other machines only the kernel's lock knows."""
        same_machine = (self.host, self.boot, self.namespace) == (socket.gethostname(), _boot(), _namespace())
        return same_machine and _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """Held from `acquire` to `release`, or until the process ends in whatever way.

    The kernel's own lock on `<folder>/lock` decides; it falls with its process, also with `kill -9`, and
    file systems that many machines share keep it too. The file says who holds it, which also guards
    where a file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._release: weakref.finalize[Any, Any] | None = None

    def acquire(self) -> Self:
        """Takes the lock, or raises a `RunError` that names who has it. Taking it again is no error."""
        if self._release is not None and self._release.alive:
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            free = _try_lock(descriptor)
            owner = _read_owner(descriptor)
            if not free or (owner is not None and owner.is_alive_here() and not owner.is_this_process()):
                raise RunError(f"{self.path.parent} is in use by {owner or 'another process'}; one run has one trainer")
            _write_owner(descriptor, Owner.current())
        except BaseException:
            os.close(descriptor)
            raise
        self._release = weakref.finalize(self, _unlock, descriptor, os.getpid())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._release)  # a data worker must not keep the lock of a dead trainer
        return self

    def release(self) -> None:
        if self._release is not None:
            self._release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _try_lock(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system: what the file says must do
        return True
    return True


def _unlock(descriptor: int, pid: int) -> None:
    if os.getpid() == pid:
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _read_owner(descriptor: int) -> Owner | None:
    try:
        return from_json(Owner, os.pread(descriptor, 4096, 0))
    except ValueError:
        return None


def _write_owner(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(asdict(owner)) + "\n").encode(), 0)
    os.fsync(descriptor)


def _boot() -> str:
    """Changes whenever the machine starts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    """Containers number their processes each from 1."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _answers(pid)
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]  # a zombie is dead, but not yet buried


def _answers(pid: int) -> str | None:
    """For systems without /proc: an empty start time if the process answers."""
    if os.name != "posix" or Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return ""
