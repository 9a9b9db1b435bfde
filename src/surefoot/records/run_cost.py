"""The cost of a whole run: days, dollars, energy, and the time lost to failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunCost:
    """The cost of all steps of a run on a cluster. An unknown amount is None.

    `seconds` includes everything: steps, evaluations, saves, failures. `goodput` is the share of it spent on steps that
    count. `save_interval_seconds` is the best interval between checkpoints for this rate of failures.
    """

    steps: int
    tokens: int
    devices: int
    step_seconds: float
    evaluation_seconds: float
    save_seconds: float
    seconds: float
    goodput: float
    failures: float
    save_interval_seconds: float | None
    device_hours: float
    dollars: float | None
    dollars_per_hour: float | None
    kilowatt_hours: float | None
    assumptions: tuple[str, ...] = ()
    low: float = 1.0
    """The shortest that four of five such runs take, as a share of `seconds`; so are their dollars."""
    high: float = 1.0

    @property
    def days(self) -> float:
        return self.seconds / 86400
