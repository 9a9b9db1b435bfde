"""The hook that the loop calls after every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from surefoot.records.log import LogRow


@dataclass
class TakenStep:
    """A step that was just taken, as one reaction hands it to the next."""

    row: LogRow
    """Its row of the log, to which reactions add what they measure."""
    began: float
    """When it began, by `time.perf_counter`."""
    stands: bool = True
    """False once a reaction has taken the step back. No later reaction sees it."""


class Reaction(Protocol):
    """Something that happens after every step. All ranks call the same reactions in the same order."""

    def after_step(self, taken: TakenStep) -> None: ...
