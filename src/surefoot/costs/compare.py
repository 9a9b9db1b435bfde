"""Compares two series of seconds that were taken in turns, without assuming how noise is distributed."""

from collections.abc import Sequence
from math import comb
from statistics import median

from surefoot.errors import RecipeError
from surefoot.records.comparison import Comparison

CONFIDENCE = 0.95


def compared(before: str, after: str, first: Sequence[float], second: Sequence[float]) -> Comparison:
    """The median of the rounds' ratios, and the order statistics between which the true median lies.

    That interval is exact for any distribution: of n rounds, how many fall below the true median is binomial.
    """
    ratios = sorted(later / earlier for earlier, later in zip(first, second, strict=True))
    outer, confidence = _interval(len(ratios))
    return Comparison(
        before, after, tuple(first), tuple(second), median(ratios), ratios[outer], ratios[-1 - outer], confidence
    )


def _interval(rounds: int) -> tuple[int, float]:
    """How many of the lowest and of the highest can be left out, and the confidence that this gives."""
    if 1 - 2 * 0.5**rounds < CONFIDENCE:
        raise RecipeError(f"{rounds} rounds cannot tell a difference with {CONFIDENCE:.0%} confidence; take 6 or more")
    outside, below = 0, 0.5**rounds
    while 1 - 2 * (below + comb(rounds, outside + 1) * 0.5**rounds) >= CONFIDENCE:
        outside += 1
        below += comb(rounds, outside) * 0.5**rounds
    return outside, 1 - 2 * below
