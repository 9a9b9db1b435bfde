"""Events of a run: everything that happened besides its steps, one JSON line each."""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from surefoot.plain_files import open_own
from surefoot.records.codec import read_lines, to_json

STOPPED_EARLY = "stopped-early"
"""The kind of the event that ends a run before its last step because its recipe asked for it."""


@dataclass(frozen=True)
class Event:
    """One event. `kind` is for example `resumed`, `saved`, `save-failed`, `skipped`, `spike` or `slowing`."""

    step: int
    kind: str
    text: str
    at: str


def append_event(path: Path, event: Event) -> None:
    """Passes one event to the operating system, whole or not at all."""
    line = (to_json(event, indent=None) + "\n").encode()
    with FileIO(open_own(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
        before = os.fstat(file.fileno()).st_size
        if file.write(line) != len(line):
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_events(path: Path) -> Iterator[Event]:
    """The events of a run, oldest first. A last line that a crash cut is skipped."""
    return read_lines(Event, path) if path.exists() else iter(())
