"""Events of a run: what happened beside its steps, one JSON line each."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from surefoot.records.codec import read_lines, to_json


@dataclass(frozen=True)
class Event:
    """One thing that happened: `kind` is such as `resumed`, `saved`, `save-failed`, `skipped`, `spike`, `slowing`."""

    step: int
    kind: str
    text: str
    at: str


def append_event(path: Path, event: Event) -> None:
    """Writes one event and hands it to the operating system."""
    with path.open("a", encoding="utf-8") as file:
        file.write(to_json(event, indent=None) + "\n")


def read_events(path: Path) -> Iterator[Event]:
    """The events of a run, oldest first; a last line without its end was cut by a crash and is left out."""
    return read_lines(Event, path) if path.exists() else iter(())
