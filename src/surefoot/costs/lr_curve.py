"""Reads the losses at rising learning rates: the smoothed curve, the steepest fall, the edge of divergence."""

import math
from collections.abc import Sequence

SMOOTHED_DECADES = 0.2
"""The standard deviation of the Gaussian that averages losses. It looks both ways, so the curve does not lag."""
MODEL_AT_REST = 10
"""The losses at this many lowest rates are the starting loss."""


def divergence(losses: Sequence[float]) -> float:
    """The loss that counts as diverged: half the starting loss above it, or the whole gain above it if that is more."""
    start = _middle(losses[:MODEL_AT_REST])
    return start + max(start - _lowest(losses), abs(start) / 2)


def has_diverged(losses: Sequence[float]) -> bool:
    """Whether two of the last three losses count as diverged. Needs the starting losses first."""
    return len(losses) > MODEL_AT_REST and _middle(losses[-3:]) > divergence(losses)


def smooth(rates: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Averages every loss with its neighbours in the logarithm of the rate. Losses are capped at divergence."""
    most, at = divergence(losses), [math.log10(rate) for rate in rates]
    capped = [min(loss, most) for loss in losses]
    return [_average(capped, [math.exp(-(((x - centre) / SMOOTHED_DECADES) ** 2) / 2) for x in at]) for centre in at]


def steepest(losses: Sequence[float], course: Sequence[float]) -> int | None:
    """The index at which the curve falls fastest before its minimum; None if it falls no more than its noise."""
    lowest = course.index(min(course))
    noise = _middle([abs(loss - mean) for loss, mean in zip(losses, course, strict=True)])
    if lowest == 0 or _middle(course[:MODEL_AT_REST]) - course[lowest] <= 3 * noise:
        return None
    falls = [course[index] - course[index + 1] for index in range(lowest)]
    return falls.index(max(falls))


def edge(course: Sequence[float]) -> int | None:
    """The first index after the minimum at which half of the gain is lost again."""
    lowest = course.index(min(course))
    limit = (_middle(course[:MODEL_AT_REST]) + course[lowest]) / 2
    return next((index for index in range(lowest + 1, len(course)) if course[index] > limit), None)


def _lowest(losses: Sequence[float]) -> float:
    """The lowest median of three neighbours."""
    return min(_middle(losses[index : index + 3]) for index in range(max(1, len(losses) - 2)))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _average(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
