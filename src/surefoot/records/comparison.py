"""A comparison: two variants timed in turns, and how certain the difference is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Seconds of each step of both variants, in the order of the rounds.

    `ratio` is the median over rounds of after / before. With the given `confidence`, the true ratio lies between `low`
    and `high`. If 1 lies between them, no difference can be claimed.
    """

    before: str
    after: str
    before_seconds: tuple[float, ...]
    after_seconds: tuple[float, ...]
    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def differs(self) -> bool:
        """Whether the difference is larger than the noise."""
        return not self.low <= 1 <= self.high
