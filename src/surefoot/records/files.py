"""Files that are whole or not there, and on the disk when we say so. What a disk refuses is told by name."""

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
    errno.EACCES: "give yourself the permission",
    errno.EPERM: "give yourself the permission",
    errno.EIO: "check the disk (the system log says more)",
}
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""What file systems say that cannot sync a folder; they keep names in another way."""


def refusal(path: Path, error: OSError, *, what: Literal["written", "read"] = "written") -> DiskError:
    """What a disk said of a file, and what to do."""
    remedy = _REMEDIES.get(error.errno or 0, "remove the cause")
    return DiskError(
        f"{path} could not be {what}: {error.strerror or error}; {remedy}, then run the same command again"
    )


@contextmanager
def refusals_of(path: Path, *, what: Literal["written", "read"] = "written") -> Iterator[None]:
    """Inside, an error of the disk becomes a `DiskError` that names this file."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error, what=what) from error


def write_whole(final: Path, content: str | bytes) -> None:
    """A file with this content, or what was there before. On return it is on the disk, under its name.

    It is written beside its place, synced and renamed. The draft is always a new file: a link in its place would lead
    elsewhere.
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
                draft.unlink(missing_ok=True)  # half a file must not take the room of a whole one
            raise
        sync_folder(final.parent)


def make_folder(folder: Path) -> None:
    """A folder, with those above it that are missing, on the disk: each is named in one that is synced."""
    with refusals_of(folder):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            sync_folder(each.parent)


def sync_file(path: Path) -> None:
    """Makes the bytes of a file durable, whoever wrote them."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable; syncing a file does not do that."""
    if os.name == "nt":  # has no such call, and needs none
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
