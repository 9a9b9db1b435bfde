"""Pareto: of many things, those that nothing else beats in every respect."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def front(things: Sequence[Thing], costs: Callable[[Thing], tuple[float, ...]]) -> list[Thing]:
    """The things to choose from, in order of their first cost: of equals the first, and none that another beats."""
    kept: list[Thing] = []
    for thing in sorted(things, key=costs):
        if not any(_as_good(costs(other), costs(thing)) for other in kept):
            kept.append(thing)
    return kept


def _as_good(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
