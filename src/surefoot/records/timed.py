"""What was timed: the calls of one operator in one place of a step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """`seconds` are of one call; None where it could not be run on made-up numbers."""

    phase: str
    module: str
    operator: str
    is_product: bool
    calls: int
    seconds: float | None
