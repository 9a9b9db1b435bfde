"""The measured time of one operator in one place of a step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """`seconds` is the time of one call; None if it could not run on random numbers."""

    phase: str
    module: str
    operator: str
    is_product: bool
    calls: int
    seconds: float | None
