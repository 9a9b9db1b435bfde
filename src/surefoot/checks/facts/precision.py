"""Precision: numbers too coarse, too large or too small for their type."""

from dataclasses import dataclass


@dataclass(slots=True)
class Scaling:
    """The work of a gradient scaler."""

    attempts: int
    skipped: int
    with_bfloat16: bool
    skipped_late: int = 0
    """Those that were skipped after the first update succeeded."""
    skipped_first: int = 0
    """The most that one optimizer skipped before its first successful update."""


@dataclass(slots=True)
class Coarse:
    """Numbers stored in a dtype that cannot represent them."""

    kind: str
    """One of "positions", "sum" or "mask"."""
    where: str
    dtype: str
    value: float


@dataclass(frozen=True, slots=True)
class PrecisionFacts:
    """All facts of this subject."""

    coarse: tuple[Coarse, ...] = ()
    scaling: Scaling | None = None
