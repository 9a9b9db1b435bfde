"""Knapsack: picks one offer for each of many items, at the least cost within a limit of bytes.

Items with the same offers are alike: only the number of items per offer matters. Of the ways to serve some items, only
the Pareto-optimal ones in bytes and cost are kept. That is exact. If there are more than `MOST` of them, only the
cheapest of those with nearly the same bytes is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

MOST = 4096


class Offer(NamedTuple):
    """The bytes and the cost of one item with this offer."""

    bytes: int
    cost: int


class Way(NamedTuple):
    """Total bytes and cost of all items, and the offer that each item takes."""

    bytes: int
    cost: int
    taken: tuple[int, ...]


class _Part(NamedTuple):
    """A choice for some kinds of items: how many items of each kind take which offer."""

    bytes: int
    cost: int
    counts: tuple[tuple[int, ...], ...] = ()


def ways(items: Sequence[Sequence[Offer]]) -> list[Way]:
    """Every Pareto-optimal way, from the fewest bytes to the least cost.

    Of alike items, the first ones take the first offers.
    """
    kinds: dict[tuple[Offer, ...], int] = {}
    for item in items:
        kinds[tuple(item)] = kinds.get(tuple(item), 0) + 1
    found = [_Part(0, 0)]
    for offers, many in kinds.items():
        each = _unbeaten(_served(offers, many))
        found = _thinned(_unbeaten([_both(one, other) for one in found for other in each]))
    return [Way(part.bytes, part.cost, _taken(items, dict(zip(kinds, part.counts, strict=True)))) for part in found]


def cheapest(found: Sequence[Way], limit: float) -> Way | None:
    """The way that costs least within the limit."""
    return next((way for way in reversed(found) if way.bytes <= limit), None)


def _served(offers: tuple[Offer, ...], many: int) -> list[_Part]:
    """All ways to serve this many alike items."""
    made = []
    for counts in _shared_out(many, len(offers)):
        taken = list(zip(counts, offers, strict=True))
        size, cost = sum(n * each.bytes for n, each in taken), sum(n * each.cost for n, each in taken)
        made.append(_Part(size, cost, (counts,)))
    return made


def _shared_out(many: int, among: int) -> Iterator[tuple[int, ...]]:
    if among == 1:
        yield (many,)
        return
    for first in range(many + 1):
        for rest in _shared_out(many - first, among - 1):
            yield (first, *rest)


def _both(one: _Part, other: _Part) -> _Part:
    return _Part(one.bytes + other.bytes, one.cost + other.cost, one.counts + other.counts)


def _unbeaten(parts: list[_Part]) -> list[_Part]:
    """Keeps the parts that cost less than every part with fewer bytes."""
    kept: list[_Part] = []
    for part in sorted(parts):
        if not kept or part.cost < kept[-1].cost:
            kept.append(part)
    return kept


def _thinned(parts: list[_Part]) -> list[_Part]:
    """Keeps the first part, and the last one in each of `MOST` equal ranges of bytes."""
    if len(parts) <= MOST:
        return parts
    low, high = parts[0].bytes, parts[-1].bytes
    ranges = [(part.bytes - low) * MOST // (high - low + 1) for part in parts]
    lasts = [part for part, (here, after) in zip(parts, pairwise([*ranges, MOST]), strict=True) if here != after]
    return lasts if lasts[0] is parts[0] else [parts[0], *lasts]


def _taken(items: Sequence[Sequence[Offer]], counts: dict[tuple[Offer, ...], tuple[int, ...]]) -> tuple[int, ...]:
    """The offer of each item, by its position among alike items."""
    ends = {kind: list(accumulate(numbers)) for kind, numbers in counts.items()}
    seen = dict.fromkeys(counts, 0)
    taken = []
    for item in map(tuple, items):
        taken.append(next(offer for offer, end in enumerate(ends[item]) if seen[item] < end))
        seen[item] += 1
    return tuple(taken)
