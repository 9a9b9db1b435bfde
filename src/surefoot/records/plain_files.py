"""Opens plain files without following links, blocking on pipes, or reusing a file that someone left there."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

from surefoot.errors import RunError

MOST_BYTES = 1 << 30
"""The largest file that is read whole: manifests and state outlines."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_OWN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


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


def read_plain(path: str | Path) -> bytes:
    """All bytes of a plain file of limited size."""
    with open(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"holds {size:,} bytes; at most {MOST_BYTES:,} are allowed", str(path))
        return file.read()


def open_new(path: Path) -> IO[bytes]:
    """Opens a new file to write. Removes a leftover of a killed process first, and follows no link."""
    with suppress(FileNotFoundError):
        path.unlink()
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _OWN, 0o666), "wb")


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
        return os.open(path, flags | os.O_CREAT | _NO_LINK | _NO_WAIT | _OWN, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EINVAL):
            raise
        raise RunError(f"{path} {error.strerror}; remove it: a run writes only to plain files") from error


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
