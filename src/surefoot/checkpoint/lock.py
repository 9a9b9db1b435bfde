"""A lock on a folder: one process holds it at a time, and a dead process never does."""

from __future__ import annotations

import json
import os
import socket
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import RunError
from surefoot.plain_files import open_own, open_plain, read_at, read_plain, refusals_of
from surefoot.records.codec import from_json

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Owner:
    """Identifies a process uniquely. A pid may be reused; together with boot id and start time it is unique."""

    pid: int
    host: str
    boot: str
    namespace: str
    started: str
    since: str

    @classmethod
    def current(cls) -> Owner:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), _boot(), _namespace(), _started(os.getpid()) or "", now)

    def is_this_process(self) -> bool:
        return replace(self, since="") == replace(Owner.current(), since="")

    def can_be_judged(self) -> bool:
        """Whether this process could see it: same machine, same boot, same container."""
        return (self.host, self.boot, self.namespace) == (socket.gethostname(), _boot(), _namespace())

    def is_alive_here(self) -> bool:
        """Whether it is running on this machine. For other machines, only the kernel's lock can tell."""
        return self.can_be_judged() and _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """Held from `acquire` to `release`, or until the process ends in any way.

    The kernel's lock on `<folder>/lock` decides. The kernel releases it when the process ends, even with
    `kill -9`. Shared file systems support it too. The file names the holder. On a file system without locks,
    the file decides: its holder is respected unless this machine can see that the process is dead.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._release: weakref.finalize[Any, Any] | None = None

    def acquire(self) -> Self:
        """Takes the lock, or raises a `RunError` that names the holder. Taking it twice is no error."""
        if self._release is not None and self._release.alive:
            return self
        with refusals_of(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_own(self.path, os.O_RDWR)
            try:
                self._refuse_others(_try_lock(descriptor), _read_owner(descriptor))
                _write_owner(descriptor, Owner.current())
            except BaseException:
                os.close(descriptor)
                raise
        self._release = weakref.finalize(self, _unlock, descriptor, os.getpid())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._release)  # a data worker must not keep the lock of a dead trainer
        return self

    def _refuse_others(self, free: bool | None, owner: Owner | None) -> None:
        if free is False:
            raise RunError(
                f"{self.path.parent} is in use by {owner or 'another process'}; stop it, or name another directory"
            )
        if owner is None or owner.is_this_process():
            return
        if owner.is_alive_here():
            raise RunError(f"{self.path.parent} is in use by {owner}; stop it, or name another directory")
        if free is None and not owner.can_be_judged():
            raise RunError(
                f"{self.path.parent} is in use by {owner}: its file system has no locks, so surefoot cannot see "
                f"whether that process still runs\nif it has ended, delete {self.path} and run the same command again"
            )

    def release(self) -> None:
        if self._release is not None:
            self._release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def holder_of(folder: Path) -> Owner | None:
    """The process that last took the lock of a folder and has not released it. It may be dead."""
    try:
        return from_json(Owner, read_plain(folder / "lock"))
    except (OSError, ValueError):
        return None


def has_ended(folder: Path) -> bool:
    """Whether the process that took the lock of a folder has ended. False if that cannot be seen."""
    try:
        if not read_plain(folder / "lock"):
            return True  # it was released
        descriptor = open_plain(folder / "lock")
    except OSError:
        return False
    try:
        owner = _read_owner(descriptor)
        if owner is None or owner.can_be_judged():
            return owner is not None and not owner.is_alive_here()
        # a process of another machine, or from before a restart: only the kernel's lock can tell
        return _try_lock(descriptor) is True
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool | None:
    """Whether the kernel gave us the lock. None if the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system: the file decides
        return None
    return True


def _unlock(descriptor: int, pid: int) -> None:
    with suppress(OSError):  # a disk error here must not fail a run that is done
        if os.getpid() == pid:
            os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _read_owner(descriptor: int) -> Owner | None:
    try:
        return from_json(Owner, read_at(descriptor, 4096, 0))
    except ValueError:
        return None


def _write_owner(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(asdict(owner)) + "\n").encode(), 0)
    os.fsync(descriptor)


def _boot() -> str:
    """The id of the current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    """The pid namespace: each container numbers its processes from 1."""
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
    return None if state in "ZX" else fields[18]  # a zombie has ended, but was not reaped yet


def _answers(pid: int) -> str | None:
    """For systems without /proc: an empty start time if the process exists."""
    if os.name != "posix" or Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return ""
