"""Precision: numbers too coarse, too large or too small for their type."""

from dataclasses import dataclass


@dataclass(slots=True)
class Scaling:
    """A gradient scaler at work."""

    attempts: int
    skipped: int
    with_bfloat16: bool
    skipped_late: int = 0
    """Of those, the ones after the first update that was made."""
    skipped_first: int = 0
    """The most of one optimizer's before its first update that was made."""


@dataclass(slots=True)
class Coarse:
    """Numbers kept in a dtype that cannot hold them."""

    kind: str
    """positions, sum or mask"""
    where: str
    dtype: str
    value: float


@dataclass(frozen=True, slots=True)
class PrecisionFacts:
    """All facts of this subject."""

    coarse: tuple[Coarse, ...] = ()
    scaling: Scaling | None = None
