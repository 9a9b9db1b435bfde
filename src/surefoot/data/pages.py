"""A file of which every 4 KiB page is hashed: no byte is used before its page is as it was written.

Beside `F` stands `F.pages`: the xxh3 of each page of `F`, padded to whole pages; then, in the same way, the
hashes of those pages; and so on until one page is left. The file's digest is the hash of that page. So a few
bytes in a manifest fix every bit, and opening a file of any size reads one page of it. A page of hashes is
checked when it is first used, a page of `F` every time.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from surefoot.errors import DataError

PAGE = 4096
FANOUT = PAGE // 8  # hashes in a page: one page of hashes stands for 2 MiB


def pages_beside(path: Path) -> Path:
    """Where the page hashes of a file are."""
    return path.with_name(path.name + ".pages")


class PagedFile:
    """A file, read through the kernel's page cache. Without a digest it is read as it is."""

    def __init__(self, path: Path, digest: str = "") -> None:
        self.path, self.digest = path, digest
        self.map = _mapped(path)
        self.bytes = memoryview(self.map)
        if digest:
            self._open_hashes()

    def check(self, firsts: Iterable[int], length: int) -> None:
        """Refuses a page that is not as it was written and holds any of the `length` bytes from each of `firsts`."""
        hashes, known, content, digest = self._hashes, self._known[0], self.bytes, xxh3_64_intdigest
        for first in firsts:  # the hottest loop of the loader: shifts by 12 are pages, by 21 pages of hashes
            if length > PAGE * FANOUT or not (known[first >> 21] and known[(first + length - 1) >> 21]):
                self._check_hashes_of(first, first + length)
            for at in range(first & -PAGE, first + length, PAGE):
                if digest(content[at : at + PAGE]) != hashes[at >> 12]:
                    raise self._damaged(at // PAGE)

    def check_all(self) -> Iterator[int]:
        """Checks the whole file, and tells after every 2 MiB how many bytes were checked."""
        for first in range(0, len(self.bytes), PAGE * FANOUT):
            end = min(first + PAGE * FANOUT, len(self.bytes))
            self.check([first], end - first)
            yield end - first

    def advise(self, first: int, end: int) -> None:
        """Tells the kernel that these bytes, and the hashes of their pages, are needed soon."""
        _will_need(self.map, first, end)
        if self.digest:
            _will_need(self._hash_map, first // PAGE * 8, ((end - 1) // PAGE + 1) * 8)

    def _damaged(self, page: int) -> DataError:
        return DataError(
            f"{self.path} is damaged: page {page:,}, the {PAGE} bytes from offset {page * PAGE:,}, is not "
            "what was written; restore the file from its source, or tokenise it again"
        )

    def _open_hashes(self) -> None:
        beside = pages_beside(self.path)
        self._hash_map = _mapped(beside)
        self._levels = _levels(-(-len(self.bytes) // PAGE))
        if len(self._hash_map) != PAGE * sum(self._levels):
            raise DataError(
                f"{beside} holds {len(self._hash_map):,} bytes; the {len(self.bytes):,} bytes of {self.path} need "
                f"{PAGE * sum(self._levels):,}: one of the two files was cut or replaced"
            )
        self._hashes = memoryview(self._hash_map).cast("Q")
        self._known = [bytearray(pages) for pages in self._levels]
        if xxh3_128_hexdigest(self._hashes[-FANOUT:]) != self.digest:
            raise DataError(f"the end of {beside} is not what the manifest says: it is damaged, or was replaced")
        self._known[-1][0] = 1

    def _check_hashes_of(self, first: int, end: int) -> None:
        for number in range(first // PAGE // FANOUT, (end - 1) // PAGE // FANOUT + 1):
            self._check_hashes(0, number)

    def _check_hashes(self, level: int, number: int) -> None:
        """Checks a page of hashes against the level above it."""
        if self._known[level][number]:
            return
        self._check_hashes(level + 1, number // FANOUT)
        page, above = sum(self._levels[:level]) + number, FANOUT * sum(self._levels[: level + 1]) + number
        if xxh3_64_intdigest(self._hashes[page * FANOUT : (page + 1) * FANOUT]) != self._hashes[above]:
            raise DataError(
                f"{pages_beside(self.path)} is damaged: page {page:,}, the {PAGE} bytes from offset {page * PAGE:,}, "
                "is not what was written; the tokens may be sound: restore this file from its source"
            )
        self._known[level][number] = 1


class PagedWriter:
    """Writes a file and its page hashes; neither has its name before `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f".{path.name}.part")
        self._file = self._draft.open("wb")
        self._waiting = bytearray()
        self._hashes: list[int] = []

    def write(self, content: bytes) -> None:
        """Appends bytes; what is hashed is what was given, not what was read back."""
        self._waiting += content
        if len(self._waiting) >= 256 * PAGE:
            self._write_pages(len(self._waiting) // PAGE * PAGE)

    def close(self) -> str:
        """Gives both files their names, on disk, and returns the digest."""
        self._write_pages(len(self._waiting))
        digest = _write_hashes(pages_beside(self.path), self._hashes)
        _keep(self._file, self._draft, self.path)
        return digest

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._file.close()
        self._draft.unlink()

    def _write_pages(self, end: int) -> None:
        ready = bytes(self._waiting[:end])
        self._file.write(ready)
        self._hashes += _hashes_of(memoryview(ready))
        del self._waiting[:end]


def hash_pages(path: Path) -> str:
    """Writes the page hashes of a file that somebody else has written, and returns its digest."""
    return _write_hashes(pages_beside(path), _hashes_of(memoryview(_mapped(path))))


def _hashes_of(content: memoryview) -> list[int]:
    return [xxh3_64_intdigest(content[first : first + PAGE]) for first in range(0, len(content), PAGE)]


def _levels(pages: int) -> list[int]:
    """The pages of hashes on each level, for a file of so many pages."""
    levels = [-(-pages // FANOUT)]
    while levels[-1] > 1:
        levels.append(-(-levels[-1] // FANOUT))
    return levels


def _write_hashes(path: Path, hashes: Sequence[int] | np.ndarray) -> str:
    draft = path.with_name(f".{path.name}.part")
    with draft.open("wb") as file:
        for pages in _levels(len(hashes)):
            content = np.zeros(pages * FANOUT, "<u8")
            content[: len(hashes)] = hashes
            file.write(content.tobytes())
            hashes = _hashes_of(memoryview(content.tobytes()))
        _keep(file, draft, path)
    return xxh3_128_hexdigest(content.tobytes())


def _keep(file: IO[bytes], draft: Path, path: Path) -> None:
    """A file has its name only when all of it is on disk."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(draft, path)


def _mapped(path: Path) -> mmap.mmap:
    if not path.is_file():
        raise DataError(f"no file {path}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Left alone, the kernel reads 46 to 60 times the bytes that random windows need.
    mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def _will_need(mapped: mmap.mmap, first: int, end: int) -> None:
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    mapped.madvise(mmap.MADV_WILLNEED, start, min(end, len(mapped)) - start)
