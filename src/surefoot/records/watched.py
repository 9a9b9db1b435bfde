"""What was seen of a script that ran unchanged."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.records.codec import read_record, to_json
from surefoot.records.files import write_whole
from surefoot.records.finding import Findings
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage

FILE = "watched.json"
"""Where a run directory keeps what was seen of a script."""


@dataclass(frozen=True)
class Watched:
    """The script's optimizer updates, what the first and the last booked one took, and the findings.

    `counted` is what else the last booked step did: `syncs`, `backwards`. `clock` is the mean of the steps that were
    not booked, by phase.
    """

    script: str
    steps: int
    models: tuple[str, ...]
    parameters: int
    first: Usage | None
    steady: Usage | None
    findings: Findings
    counted: Tally = Tally()
    step_seconds: tuple[float, ...] = ()
    data_seconds: float | None = None
    """What a step waited for its loaders; None where no `DataLoader` was seen."""
    clock: Tally = Tally()
    device: str = ""
    """Where the parameters lie."""

    @property
    def tally(self) -> Tally:
        """Everything measured of the last booked step, and the mean seconds by phase of those that were not booked."""
        return (Tally() if self.steady is None else self.steady.tally) + self.clock

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from surefoot.records.html import watched_table

        return watched_table(self)


def write_watched(folder: Path, watched: Watched) -> None:
    """Keeps what was seen in a run directory."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, to_json(watched) + "\n")


def read_watched(folder: Path) -> Watched | None:
    """What was seen of a script, if a run directory has it."""
    file = folder / FILE
    return read_record(Watched, file) if file.exists() else None
