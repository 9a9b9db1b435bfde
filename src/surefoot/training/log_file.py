"""Writes a log of a running run. Rows that the disk refuses are kept and written before the next checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Generic, TypeVar

from surefoot.plain_files import open_own, refusal, refusals_of, sync_folder, write_whole
from surefoot.records.log import mend

MOST_KEPT_BYTES = 16 * 2**20
"""The most bytes of refused rows to keep, about ten thousand rows. Beyond that the run ends."""


Row = TypeVar("Row")


class LogFile(Generic[Row]):
    """Writes rows in order and without gaps: if one is refused, it waits, and so do those after it.

    After a failed sync, the kernel may have dropped written data and still report success for the next sync. So the
    whole file is rewritten.
    """

    def __init__(self, path: Path, line_of: Callable[[Row], str]) -> None:
        self.path, self._line_of, self._waiting, self._doubtful = path, line_of, b"", False
        with refusals_of(path):
            mend(path)
            self._file = self._open()
            sync_folder(path.parent)

    def append(self, row: Row) -> None:
        """Passes one row to the operating system, or keeps it."""
        self._waiting += self._line_of(row).encode()
        try:
            self._write()
        except OSError as error:
            if len(self._waiting) > MOST_KEPT_BYTES:
                raise refusal(self.path, error) from error

    def sync(self) -> None:
        """Returns when all rows are on the disk. A `DiskError` says why they are not; the next call tries again."""
        with refusals_of(self.path):
            self._write()
            if self._doubtful:
                self._write_anew()
            try:
                os.fsync(self._file.fileno())
            except OSError:
                self._doubtful = True
                raise

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        while self._waiting:
            self._waiting = self._waiting[self._file.write(self._waiting) :]

    def _write_anew(self) -> None:
        write_whole(self.path, self.path.read_bytes())
        self._file.close()
        self._file = self._open()
        self._doubtful = False

    def _open(self) -> FileIO:
        return FileIO(open_own(self.path, os.O_WRONLY | os.O_APPEND), "ab")
