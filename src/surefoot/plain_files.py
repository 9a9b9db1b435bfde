"""Reads and writes plain files: no link is followed, no pipe waited for, no half file left behind.

A disk error names the file and says what to do.
"""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Literal

from surefoot.errors import DiskError, RunError

MOST_BYTES = 1 << 30
"""The largest file that is read whole: manifests and state outlines."""
PRIVATE = 0o600
"""The permissions of a new record: its owner reads and writes it, and nobody else."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_reading = threading.Lock()
_OWN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EROFS: "make the disk writable",
    errno.EACCES: "fix the permissions",
    errno.EPERM: "fix the permissions",
    errno.EIO: "check the disk (the system log says more)",
}
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot sync a folder; they make names durable in another way."""


def inside(folder: Path, name: str) -> Path:
    """The path of a file that a manifest names. A name that could lead out of the folder is an `OSError`."""
    if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\\0"):
        raise OSError(
            errno.EINVAL, "leads out of the folder: a manifest may name only files in its own folder", str(name)
        )
    return folder / name


def open_plain(path: str | Path) -> int:
    """Opens a plain file to read. A link, a pipe, a device or a folder raises an `OSError` that says so."""
    _refuse_other(path, os.lstat(path))
    descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT | _OWN)
    try:
        _refuse_other(path, os.fstat(descriptor))  # it may have been replaced since
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_limited(path: str | Path) -> BinaryIO:
    """Opens a plain file to read it whole. A larger one than `MOST_BYTES` raises an `OSError` that says so."""
    file = open(open_plain(path), "rb")  # noqa: SIM115  the caller closes it
    size = os.fstat(file.fileno()).st_size
    if size > MOST_BYTES:
        file.close()
        raise OSError(errno.EFBIG, f"holds {size:,} bytes; at most {MOST_BYTES:,} are allowed", str(path))
    return file


def read_plain(path: str | Path) -> bytes:
    """All bytes of a plain file of limited size."""
    with open_limited(path) as file:
        return file.read()


def read_at(descriptor: int, length: int, first: int) -> bytes:
    """Bytes at a place of an open file. On Windows it moves the file's position, so threads take turns."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, first)
    with _reading:
        os.lseek(descriptor, first, os.SEEK_SET)
        return os.read(descriptor, length)


def open_new(path: Path, *, mode: int = 0o666) -> IO[bytes]:
    """Opens a new file to write. Removes a leftover of a killed process first, and follows no link."""
    with suppress(FileNotFoundError):
        path.unlink()
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _OWN, mode), "wb")


def permissions_of(path: Path) -> int:
    """Who may read and write a plain file; of a file that is missing, and of anything else, only its owner."""
    with suppress(OSError):
        found = os.lstat(path).st_mode
        return stat.S_IMODE(found) & 0o666 | PRIVATE if stat.S_ISREG(found) else PRIVATE
    return PRIVATE


def create_new(path: Path) -> Path:
    """Makes a new empty file in the same way, for a library that opens files by name."""
    open_new(path).close()
    return path


def open_to_append(path: Path) -> IO[str]:
    """Opens a plain file of a run, to append lines of text."""
    return open(open_own(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8")


def open_own(path: Path, flags: int) -> int:
    """Opens a plain file of a run; makes it if it is missing. Anything else under its name is refused."""
    try:
        if os.path.lexists(path):
            _refuse_other(path, os.lstat(path))
        return os.open(path, flags | os.O_CREAT | _NO_LINK | _NO_WAIT | _OWN, PRIVATE)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EINVAL):
            raise
        raise RunError(f"{path} {error.strerror}; remove it: a run writes only to plain files") from error


def own_folder(folder: Path) -> Path:
    """A folder of a run that a library writes to. A link in its place is refused."""
    if folder.is_symlink():
        raise RunError(f"{folder} is a link to {os.readlink(folder)!r}; remove it: a run writes to its own folders")
    return folder


def _refuse_other(path: str | Path, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"is {_KINDS.get(kind, 'something else')}, not a plain file", str(path))


def only_ours(path: Path) -> bool:
    """Whether only this user and root can change or replace a plain file, directly or through a folder above it."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and _closed(os.lstat(path)) and only_our_folder(path.parent)
    except OSError:
        return False


def only_our_folder(folder: Path) -> bool:
    """The same for a folder. A folder above it may be writable by others if it is sticky, as /tmp is."""
    try:
        found = os.lstat(folder)
        above = [each.stat() for each in folder.resolve().parents]
    except OSError:
        return False
    sound = stat.S_ISDIR(found.st_mode) and _closed(found)
    return sound and all(_closed(each) or (_owned(each) and each.st_mode & stat.S_ISVTX) for each in above)


def _owned(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def _closed(found: os.stat_result) -> bool:
    return _owned(found) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def refusal(path: Path, error: OSError, *, what: Literal["written", "read"] = "written") -> DiskError:
    """The error for a file that the disk refused, with what to do."""
    remedy = _REMEDIES.get(error.errno or 0, "fix the cause")
    return DiskError(
        f"{path} could not be {what}: {error.strerror or error}; {remedy}, then run the same command again"
    )


@contextmanager
def refusals_of(path: Path, *, what: Literal["written", "read"] = "written") -> Iterator[None]:
    """Inside, an `OSError` becomes a `DiskError` that names this file."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error, what=what) from error


def write_whole(final: Path, content: str | bytes, *, shared: bool = False) -> None:
    """Writes a file atomically: a crash leaves the old file or the new one. On return it is on the disk.

    A draft in the same folder is written, synced and renamed. It is always a new file, because a link under its name
    could lead elsewhere.

    Only you can read a new file, since a record may hold what others should not see, such as a URL or your code. A
    file that exists keeps its permissions. `shared` files are made to be given away: everyone may read them.
    """
    draft = final.with_name(f".{final.name}.part")
    with refusals_of(final):
        try:
            with open_new(draft, mode=0o666 if shared else PRIVATE) as file:
                if not shared and os.name != "nt":
                    os.fchmod(file.fileno(), permissions_of(final))
                # Half a character, as a damaged record may hold it, is written as its escape, which JSON reads again.
                file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, final)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)  # half a file must not take up space
            raise
        sync_folder(final.parent)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, for one: making it says so
        return False


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents durably: the parent of each new folder is synced."""
    for each in (folder, *folder.parents):
        if _is_there(each) and not each.is_dir():
            raise RunError(f"{each} is a file, not a directory; name another directory")
    with refusals_of(folder):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            sync_folder(each.parent)


def sync_file(path: Path) -> None:
    """Makes the bytes of a file durable, no matter who wrote them."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable. Syncing a file does not do that."""
    if os.name == "nt":  # Windows has no such call and needs none
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
