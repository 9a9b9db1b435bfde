"""Two ways to run one thing, timed in turns, and how sure the difference is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Seconds of each step on both sides, in the order of their rounds.

    `ratio` is the median of the rounds' ratios, after over before; with the given `confidence` the true one lies from
    `low` to `high`. Where 1 lies between them, no difference can be told.
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
        """Whether a difference can be told from noise."""
        return not self.low <= 1 <= self.high
