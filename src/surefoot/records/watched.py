"""The results of watching an unchanged script."""

from dataclasses import dataclass
from pathlib import Path

from surefoot.plain_files import make_folder, write_whole
from surefoot.records.codec import read_record, to_json
from surefoot.records.finding import Findings
from surefoot.records.shown import Shown
from surefoot.records.splits import SplitProfile
from surefoot.records.tally import Tally
from surefoot.records.usage import Usage

FILE = "watched.json"
"""The file in a run directory for a watched script."""


@dataclass(frozen=True)
class Watched(Shown):
    """The script's number of updates, the usage of the first and the last metered step, and the findings.

    A script that makes no update, for example inference, has 0 steps; its usage is that of the whole script.
    `counted` has other counts of the last metered step: `syncs`, `backwards`. `clock` is the mean of the other steps,
    by phase.
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
    """Seconds that a step waited for data; None if there was no `DataLoader`."""
    clock: Tally = Tally()
    device: str = ""
    """The device of the parameters."""
    trained: bool = True
    """Whether a backward pass or an update was seen. Without one, most checks had nothing to look at."""
    failure: str = ""
    """The error inside surefoot that stopped the measuring, if there was one."""
    data: SplitProfile | None = None
    """What training and validation were given, if that was asked for and seen."""

    @property
    def tally(self) -> Tally:
        """All measurements of the last metered step, and the mean seconds by phase of the others."""
        return (Tally() if self.steady is None else self.steady.tally) + self.clock


def write_watched(folder: Path, watched: Watched) -> None:
    """Writes the results to a run directory."""
    make_folder(folder)
    write_whole(folder / FILE, to_json(watched) + "\n")


def read_watched(folder: Path) -> Watched | None:
    """The results in a run directory, if there are any."""
    file = folder / FILE
    return read_record(Watched, file) if file.exists() else None
