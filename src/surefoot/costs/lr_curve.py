"""What the losses at rising learning rates say: their smooth course, the steepest fall, the edge of divergence."""

import math
from collections.abc import Sequence

SMOOTHED_DECADES = 0.2
"""The deviation of the bell under which losses are averaged. It looks both ways, so the course does not lag."""
MODEL_AT_REST = 10
"""So many losses from the lowest rates on are what the model starts from."""


def divergence(losses: Sequence[float]) -> float:
    """The loss that counts as diverged: above the first ones by half of them, or by all that was gained if more."""
    start = _middle(losses[:MODEL_AT_REST])
    return start + max(start - _lowest(losses), abs(start) / 2)


def has_diverged(losses: Sequence[float]) -> bool:
    """Two of the last three losses are above what counts as diverged. It takes a start to tell."""
    return len(losses) > MODEL_AT_REST and _middle(losses[-3:]) > divergence(losses)


def smooth(rates: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Every loss averaged with its neighbours in the rate's logarithm; no single one counts beyond divergence."""
    most, at = divergence(losses), [math.log10(rate) for rate in rates]
    capped = [min(loss, most) for loss in losses]
    return [_average(capped, [math.exp(-(((x - centre) / SMOOTHED_DECADES) ** 2) / 2) for x in at]) for centre in at]


def steepest(losses: Sequence[float], course: Sequence[float]) -> int | None:
    """Where the course falls fastest before it is lowest; None where it falls by no more than its noise."""
    lowest = course.index(min(course))
    noise = _middle([abs(loss - mean) for loss, mean in zip(losses, course, strict=True)])
    if lowest == 0 or _middle(course[:MODEL_AT_REST]) - course[lowest] <= 3 * noise:
        return None
    falls = [course[index] - course[index + 1] for index in range(lowest)]
    return falls.index(max(falls))


def edge(course: Sequence[float]) -> int | None:
    """The first point behind the lowest at which half of what was gained is lost again."""
    lowest = course.index(min(course))
    limit = (_middle(course[:MODEL_AT_REST]) + course[lowest]) / 2
    return next((index for index in range(lowest + 1, len(course)) if course[index] > limit), None)


def _lowest(losses: Sequence[float]) -> float:
    """The lowest that two of three neighbours reached."""
    return min(_middle(losses[index : index + 3]) for index in range(max(1, len(losses) - 2)))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _average(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
