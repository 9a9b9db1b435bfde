"""The run while it trains: its record, which changes after every step, and the writer of its directory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from surefoot.records.run import Run
from surefoot.step import Step
from surefoot.training.run_writer import RunWriter


class CurrentRun:
    """Every rank has one. `run` is a frozen record, which is replaced whenever something in it changes."""

    def __init__(self, run: Run, writer: RunWriter) -> None:
        self.run, self.writer = run, writer
        self.step: Step | None = None
        """None until it is built."""

    def change(self, **changes: Any) -> None:
        """Replaces fields of the record. The file follows at the next `write` or `note`."""
        self.run = replace(self.run, **changes)

    def write(self) -> None:
        """Writes `run.json`. Raises if the disk refuses it."""
        self.writer.write(self.run)

    def note(self) -> None:
        """Writes `run.json`. A disk error becomes an event."""
        self.writer.note(self.run)

    def event(self, kind: str, text: str) -> None:
        """Writes an event of the step that was last taken."""
        self.writer.tell_of(self.run, 0 if self.step is None else self.step.number, kind, text)
