"""Compares two series of seconds measured in turns, without assuming a distribution of the noise."""

from collections.abc import Sequence
from math import comb
from statistics import median

from surefoot.errors import RecipeError
from surefoot.records.profile import Comparison

CONFIDENCE = 0.95


def compared(before: str, after: str, first: Sequence[float], second: Sequence[float]) -> Comparison:
    """The median of the rounds' ratios, and the order statistics that enclose the true median.

    The interval is exact for any distribution: the number of rounds below the true median is binomial.
    """
    ratios = sorted(later / earlier for earlier, later in zip(first, second, strict=True))
    outer, confidence = _interval(len(ratios))
    return Comparison(
        before, after, tuple(first), tuple(second), median(ratios), ratios[outer], ratios[-1 - outer], confidence
    )


def _interval(rounds: int) -> tuple[int, float]:
    """How many of the lowest and of the highest rounds to leave out, and the resulting confidence."""
    if 1 - 2 * 0.5**rounds < CONFIDENCE:
        raise RecipeError(f"{rounds} rounds cannot show a difference with {CONFIDENCE:.0%} confidence; use 6 or more")
    outside, below = 0, 0.5**rounds
    while 1 - 2 * (below + comb(rounds, outside + 1) * 0.5**rounds) >= CONFIDENCE:
        outside += 1
        below += comb(rounds, outside) * 0.5**rounds
    return outside, 1 - 2 * below
