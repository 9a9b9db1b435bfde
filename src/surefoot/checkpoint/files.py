"""Files that are safely on disk: hashed as they are written, then synced."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from surefoot.errors import CheckpointError
from surefoot.plain_files import open_plain
from surefoot.plain_files import sync_folder as sync_folder

CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Fingerprint:
    """The size of a file in bytes, and its hash."""

    bytes: int
    xxh3_128: str


class HashedFile:
    """A file being written. The hash covers the bytes passed to `write`, not the bytes that a disk stored."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self._bytes = file, xxhash.xxh3_128(), 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error  # torch.save reports it as "unexpected pos", so keep the cause
            raise
        self._hash.update(data)
        self._bytes += written
        return written

    def tell(self) -> int:
        return self._bytes

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Only flushes. Whoever opened the file syncs and closes it."""
        self.flush()

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._bytes, self._hash.hexdigest())


@contextmanager
def new_file(path: Path) -> Iterator[HashedFile]:
    """Creates a new file and syncs it at the end. An error names the file and the cause."""
    stream = None
    try:
        with open(path, "xb") as file:
            stream = HashedFile(file)
            yield stream
            file.flush()
            os.fsync(file.fileno())
    except Exception as error:
        cause = stream.error if stream is not None and stream.error is not None else error
        if isinstance(cause, OSError):
            raise CheckpointError(f"{path.name} could not be written: {cause.strerror or cause}") from cause
        raise


def write_new(path: Path, data: bytes) -> Fingerprint:
    """Writes a whole new file and syncs it."""
    with new_file(path) as file:
        file.write(data)
    return file.fingerprint()


def fingerprint(path: Path) -> Fingerprint:
    """Reads a whole file and hashes it."""
    digest, size, buffer = xxhash.xxh3_128(), 0, bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with open(open_plain(path), "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
            size += count
    return Fingerprint(size, digest.hexdigest())
