"""The hashes of a file's pages, hashed in turn up to one digest: a few bytes in a manifest verify every bit.

The file `F.pages` next to `F` holds the xxh3 of each 4 KiB page of `F`, padded to whole pages. Then follow the hashes
of those pages, and so on until one page is left. The file's digest is the hash of that page. So opening a file of any
size reads one page of hashes. Every other page of hashes is verified when it is first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from surefoot.errors import DataError
from surefoot.plain_files import open_new

PAGE = 4096
SUFFIX = ".pages"
FANOUT = PAGE // 8  # hashes in a page: one page of hashes stands for 2 MiB
Read = Callable[[int, int], memoryview]
"""Reads bytes of a file: offset and length."""


def pages_beside(path: Path) -> Path:
    """The file with the page hashes of a file."""
    return path.with_name(path.name + SUFFIX)


class HashTree:
    """The hashes of a file of `size` bytes. `known[0]` marks the pages of hashes that were verified.

    With `keep`, verified hashes are copied to `hashes`: 1/512 of the file. Only the used part takes memory.
    """

    def __init__(self, path: Path, size: int, digest: str, read: Read, hash_bytes: int, *, keep: bool = False) -> None:
        self._of, self._read = path, read
        levels = _levels(-(-size // PAGE))
        *self._starts, pages = accumulate(levels, initial=0)
        needed = PAGE * pages
        if hash_bytes != needed:
            raise DataError(
                f"{pages_beside(path)} holds {hash_bytes:,} bytes; the {size:,} bytes of {path} need "
                f"{needed:,}: one of the two files was cut or replaced"
            )
        top = read(needed - PAGE, PAGE)
        if xxh3_128_hexdigest(top) != digest:
            raise DataError(
                f"the end of {pages_beside(path)} does not match the manifest: it is damaged or was replaced; "
                "restore it and the file beside it from their source, or tokenise the text again"
            )
        self.known = [bytearray(pages) for pages in levels]
        self._kept = memoryview(bytearray(PAGE * levels[0] if keep else 0))
        self.hashes = self._kept.cast("Q")
        if len(levels) == 1:
            self._keep(0, top)
        self.known[-1][0] = 1

    def check(self, first: int, end: int) -> None:
        """Verifies the hashes of the file's bytes from `first` to `end`. Raises if they are damaged."""
        for number in range(first // PAGE // FANOUT, (end - 1) // PAGE // FANOUT + 1):
            self._check(0, number)

    def _check(self, level: int, number: int) -> None:
        """Verifies a page of hashes with the level above it."""
        if self.known[level][number]:
            return
        self._check(level + 1, number // FANOUT)
        page, above = self._starts[level] + number, FANOUT * self._starts[level + 1] + number
        content = self._read(page * PAGE, PAGE)
        if xxh3_64_intdigest(content) != int.from_bytes(self._read(8 * above, 8), "little"):
            raise DataError(
                f"{pages_beside(self._of)} is damaged: page {page:,}, the {PAGE} bytes from offset {page * PAGE:,}, "
                "does not match its hash; the tokens may be sound: restore this file from its source"
            )
        if level == 0:
            self._keep(number, content)
        self.known[level][number] = 1

    def _keep(self, number: int, content: memoryview) -> None:
        if len(self._kept):
            self._kept[number * PAGE : (number + 1) * PAGE] = content


def hashes_of(content: memoryview) -> list[int]:
    """The hash of each page."""
    return [xxh3_64_intdigest(content[first : first + PAGE]) for first in range(0, len(content), PAGE)]


def write_hashes(path: Path, hashes: Sequence[int] | np.ndarray) -> str:
    """Writes the hashes of a file's pages and all levels above, and returns the digest."""
    draft = path.with_name(f".{path.name}.part")
    with open_new(draft) as file:
        for pages in _levels(len(hashes)):
            content = np.zeros(pages * FANOUT, "<u8")
            content[: len(hashes)] = hashes
            file.write(content.tobytes())
            hashes = hashes_of(memoryview(content.tobytes()))
        keep(file, draft, path)
    return xxh3_128_hexdigest(content.tobytes())


def keep(file: IO[bytes], draft: Path, path: Path) -> None:
    """Syncs a draft and gives it its name: a file with this name is complete on disk."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(draft, path)


def _levels(pages: int) -> list[int]:
    """The pages of hashes on each level, for a file of so many pages."""
    levels = [-(-pages // FANOUT)]
    while levels[-1] > 1:
        levels.append(-(-levels[-1] // FANOUT))
    return levels
