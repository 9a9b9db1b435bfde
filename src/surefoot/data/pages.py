"""A file with a hash for every 4 KiB page: no byte is used before its page is verified.

`MappedFile` is faster for files that fit in the page cache. `ReadFile` is for larger files: a map keeps a page of page
tables for every 2 MiB that was ever touched, a read keeps nothing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from xxhash import xxh3_64_intdigest

from surefoot.data.hash_tree import FANOUT, PAGE, HashTree, hashes_of, keep, pages_beside, write_hashes
from surefoot.errors import DataError
from surefoot.plain_files import open_new, open_plain, read_at

ADVISES = hasattr(os, "posix_fadvise")  # macOS supports it for maps only
MAPS_ADVISE = hasattr(mmap.mmap, "madvise")  # not on Windows


class MappedFile:
    """A file, read through a map of the kernel's page cache. Without a digest it is not verified.

    The kernel kills a process that touches a page past the end of a mapped file (SIGBUS). So the size is checked before
    every read, and the hashes are not mapped: each page of them is copied when it is verified.
    """

    def __init__(self, path: Path, digest: str = "") -> None:
        self.path, self.digest = path, digest
        self.map = _mapped(path)
        self.bytes = memoryview(self.map)
        self.size, self._size_now = len(self.bytes), self.map.size
        if digest:
            self._hash_file = _Descriptor(pages_beside(path))
            self._tree = HashTree(path, self.size, digest, self._hash_file.read, self._hash_file.size, keep=True)
            self._hashes = self._tree.hashes

    def whole(self) -> None:
        """Raises if the file was truncated since it was opened."""
        if self._size_now() < self.size:
            raise _cut(self.path, self.size)

    def read(self, first: int, length: int) -> memoryview:
        """Verified bytes: a view, not a copy."""
        if self.digest:
            self.check((first,), length)
        elif self._size_now() < self.size:
            raise _cut(self.path, self.size)
        return self.bytes[first : first + length]

    def check(self, firsts: Iterable[int], length: int) -> None:
        """Verifies the pages of `length` bytes from each of `firsts`. Raises if one is damaged."""
        if self._size_now() < self.size:  # like `whole`, but inlined: this is the hottest loop of the loader
            raise _cut(self.path, self.size)
        hashes, known, content, digest = self._hashes, self._tree.known[0], self.bytes, xxh3_64_intdigest
        for first in firsts:  # shifts by 12 are pages, by 21 pages of hashes
            if length > PAGE * FANOUT or not (known[first >> 21] and known[(first + length - 1) >> 21]):
                self._tree.check(first, first + length)
            for at in range(first & -PAGE, first + length, PAGE):
                if digest(content[at : at + PAGE]) != hashes[at >> 12]:
                    raise _damaged(self.path, at // PAGE)

    def advise(self, first: int, length: int) -> None:
        """Tells the kernel that these bytes, and the hashes of their pages, are needed soon."""
        _will_need(self.map, first, first + length)
        if self.digest:
            self._hash_file.advise(first // PAGE * 8, length // PAGE * 8 + 16)


class ReadFile:
    """Like `MappedFile`, by reads: it verifies a copy, and page tables do not grow."""

    def __init__(self, path: Path, digest: str = "") -> None:
        self.path, self.digest = path, digest
        self._file = _Descriptor(path)
        self.size = self._file.size
        if digest:
            self._hashes = _Descriptor(pages_beside(path))
            self._tree = HashTree(path, self.size, digest, self._hashes.read, self._hashes.size)

    def read(self, first: int, length: int) -> memoryview:
        """Verified bytes: a copy."""
        if not self.digest:
            return self._file.read(first, length)
        start, known = first & -PAGE, self._tree.known[0]
        size = min((first + length + PAGE - 1) & -PAGE, self.size) - start
        content = self._file.read(start, size)
        if length > PAGE * FANOUT or not (known[first >> 21] and known[(start + size - 1) >> 21]):
            self._tree.check(start, start + size)
        at = 0
        for wanted in self._hashes.read(start >> 9, (size + PAGE - 1) >> 12 << 3).cast("Q"):
            if xxh3_64_intdigest(content[at : at + PAGE]) != wanted:
                raise _damaged(self.path, (start + at) // PAGE)
            at += PAGE
        return content[first - start : first - start + length]

    def advise(self, first: int, length: int) -> None:
        """Tells the kernel that these bytes, and the hashes of their pages, are needed soon."""
        self._file.advise(first, length)
        if self.digest:
            self._hashes.advise(first // PAGE * 8, length // PAGE * 8 + 16)


PagedFile = MappedFile | ReadFile


def check_all(file: PagedFile) -> Iterator[int]:
    """Verifies a whole file, and yields the number of bytes after every 2 MiB."""
    for first in range(0, file.size, PAGE * FANOUT):
        yield len(file.read(first, min(PAGE * FANOUT, file.size - first)))


class PagedWriter:
    """Writes a file and its page hashes. Both get their names in `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f".{path.name}.part")
        self._file = open_new(self._draft)
        self._waiting = bytearray()
        self._hashes: list[int] = []

    def write(self, content: bytes) -> None:
        """Appends bytes. Hashes the given bytes, not bytes read back from disk."""
        self._waiting += content
        if len(self._waiting) >= 256 * PAGE:
            self._write_pages(len(self._waiting) // PAGE * PAGE)

    def close(self) -> str:
        """Completes both files on disk, and returns the digest."""
        self._write_pages(len(self._waiting))
        digest = write_hashes(pages_beside(self.path), self._hashes)
        keep(self._file, self._draft, self.path)
        return digest

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._file.close()
        self._draft.unlink()

    def _write_pages(self, end: int) -> None:
        ready = bytes(self._waiting[:end])
        self._file.write(ready)
        self._hashes += hashes_of(memoryview(ready))
        del self._waiting[:end]


def hash_pages(path: Path) -> str:
    """Writes the page hashes of an existing file, and returns its digest."""
    file, hashes = _Descriptor(path), list[int]()
    for first in range(0, file.size, PAGE * FANOUT):
        hashes += hashes_of(file.read(first, min(PAGE * FANOUT, file.size - first)))
    return write_hashes(pages_beside(path), hashes)


class _Descriptor:
    """An open file that is read at random places, by any thread."""

    def __init__(self, path: Path) -> None:
        self._number = _opened(path)
        self.path, self.size = path, os.fstat(self._number).st_size
        # As for maps: by default, the kernel reads far more than random windows need.
        if ADVISES:
            os.posix_fadvise(self._number, 0, 0, os.POSIX_FADV_RANDOM)
        if not self.size:
            raise DataError(f"{path} is empty")

    def __del__(self) -> None:
        if hasattr(self, "_number") and os is not None:  # at the end of a process, modules are gone first
            os.close(self._number)

    def read(self, first: int, length: int) -> memoryview:
        content = read_at(self._number, length, first)
        if len(content) != length:
            raise _cut(self.path, self.size)
        return memoryview(content)

    def advise(self, first: int, length: int) -> None:
        if ADVISES:
            os.posix_fadvise(self._number, first, length, os.POSIX_FADV_WILLNEED)


def _opened(path: Path) -> int:
    try:
        return open_plain(path)
    except FileNotFoundError:
        raise DataError(f"no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _mapped(path: Path) -> mmap.mmap:
    with open(_opened(path), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DataError(f"{path} is empty")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # By default, the kernel reads 46 to 60 times the bytes that random windows need.
    if MAPS_ADVISE:
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def _will_need(mapped: mmap.mmap, first: int, end: int) -> None:
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    if MAPS_ADVISE:
        mapped.madvise(mmap.MADV_WILLNEED, start, min(end, len(mapped)) - start)


def _cut(path: Path, size: int) -> DataError:
    return DataError(
        f"{path} is cut: it held {size:,} bytes when surefoot opened it, and holds fewer now: somebody wrote to it; "
        "restore it from its source, or tokenise the text again"
    )


def _damaged(path: Path, page: int) -> DataError:
    return DataError(
        f"{path} is damaged: page {page:,}, the {PAGE} bytes from offset {page * PAGE:,}, does not "
        "match its hash, or the file was replaced; restore it from its source, or tokenise the text again"
    )
