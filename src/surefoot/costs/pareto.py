"""Pareto: keeps the things that no other thing beats in every cost."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def front(things: Sequence[Thing], costs: Callable[[Thing], tuple[float, ...]]) -> list[Thing]:
    """The Pareto front, in order of the first cost. Of equal things it keeps the first."""
    kept: list[Thing] = []
    for thing in sorted(things, key=costs):
        if not any(_as_good(costs(other), costs(thing)) for other in kept):
            kept.append(thing)
    return kept


def _as_good(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
