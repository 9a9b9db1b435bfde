"""What was seen of a script that ran unchanged."""

from dataclasses import dataclass

from surefoot.records.finding import Findings
from surefoot.records.usage import Usage


@dataclass(frozen=True)
class Watched:
    """The script's optimizer updates, what the first and the last booked one took, and the findings."""

    script: str
    steps: int
    models: tuple[str, ...]
    parameters: int
    first: Usage | None
    steady: Usage | None
    findings: Findings
