"""What a training responds to: the experiments on an unchanged script, what each showed, and the findings."""

from dataclasses import dataclass, field
from typing import Literal

from surefoot.records.finding import Findings

Outcome = Literal["as expected", "finding", "unclear", "not tried"]


@dataclass(frozen=True)
class Experiment:
    """One thing that was changed, and what the training or its evaluation made of it."""

    name: str
    outcome: Outcome
    seen: str
    """What was measured; for an experiment that was not tried, the reason."""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Probed:
    """The experiments on one script."""

    script: str
    updates: int
    """Those of the longest run."""
    runs: int
    """How often the script was started."""
    copies: int
    """How often its last evaluation was copied."""
    expected_cpu_seconds: float
    cpu_seconds: float
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    findings: Findings
    notes: tuple[str, ...] = ()
    """How the runs differed from the script's own."""
