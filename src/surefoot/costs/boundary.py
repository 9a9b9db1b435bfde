"""Boundary: finds the largest candidate within a limit with few evaluations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FURTHEST = 8
"""The next candidate may be at most this many times the largest one so far: the line is not trusted further."""

GUESSES = 6
"""After this many evaluations the amounts do not lie on a line, and bisection takes over."""


@dataclass(frozen=True)
class Asked:
    """A candidate, its amount, and an estimate of the part of the amount that grows with the candidate."""

    candidate: int
    amount: float
    growing: float


def largest_within(
    candidates: Sequence[int], ask: Callable[[int], Asked], limit: float, *, start: int
) -> tuple[int | None, int | None]:
    """The largest candidate within the limit, and the next one, which is not within it. Both were evaluated.

    Amounts should lie near a line, which says where to look next; the answer does not depend on it. If amounts do not
    always grow, the answer is a candidate that fits just below one that does not. The first is None if no candidate
    fits, the second if there is no larger one.
    """
    asked: dict[int, Asked] = {}
    at = max(0, bisect_right(candidates, start) - 1)
    while True:
        asked[at] = ask(candidates[at])
        held = max((each for each in asked if asked[each].amount <= limit), default=-1)
        over = min((each for each in asked if each > held), default=len(candidates))
        if over == held + 1:
            return (candidates[held] if held >= 0 else None), (candidates[over] if over < len(candidates) else None)
        guess = (held + over) // 2 if len(asked) > GUESSES else _guess(candidates, asked, limit)
        at = min(max(guess, held + 1), over - 1)


def _guess(candidates: Sequence[int], asked: dict[int, Asked], limit: float) -> int:
    """The largest candidate within the limit if amounts lie on a line."""
    near = sorted(asked.values(), key=lambda each: abs(each.amount - limit))[:2]
    nearest, other = near[0], near[-1]
    slope = nearest.growing / nearest.candidate
    if other.candidate != nearest.candidate:
        slope = (nearest.amount - other.amount) / (nearest.candidate - other.candidate)
    furthest = FURTHEST * max(each.candidate for each in asked.values())
    reached = nearest.candidate + (limit - nearest.amount) / slope if slope > 0 else furthest
    return bisect_right(candidates, min(reached, furthest)) - 1
