"""Writes files atomically and durably. A disk error names the file and what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from surefoot.errors import DiskError
from surefoot.records.plain_files import open_new

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


def write_whole(final: Path, content: str | bytes) -> None:
    """Writes a file atomically: a crash leaves the old file or the new one. On return it is on the disk.

    A draft in the same folder is written, synced and renamed. It is always a new file, because a link under its name
    could lead elsewhere.
    """
    draft = final.with_name(f".{final.name}.part")
    with refusals_of(final):
        try:
            with open_new(draft) as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, final)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)  # half a file must not take up space
            raise
        sync_folder(final.parent)


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents durably: the parent of each new folder is synced."""
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
