"""Knapsack: one offer for each of many items, so that all bytes stay within a limit and the cost is least.

Items with the same offers are alike, and only how many of them take which offer matters. Of the ways to serve some
items, only those are carried on that no other beats in both bytes and cost. That is exact; where more than `MOST` ways
are worth having, of those with nearly the same bytes the cheapest is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

MOST = 4096


class Offer(NamedTuple):
    """What one item takes if it is served so."""

    bytes: int
    cost: int


class Way(NamedTuple):
    """Bytes and cost of all items together, and which offer each of them takes."""

    bytes: int
    cost: int
    taken: tuple[int, ...]


class _Part(NamedTuple):
    """Some kinds of items served: of each kind, how many take which offer."""

    bytes: int
    cost: int
    counts: tuple[tuple[int, ...], ...] = ()


def ways(items: Sequence[Sequence[Offer]]) -> list[Way]:
    """Every way that no other beats, from the fewest bytes to the least cost.

    Of alike items, the first ones take the offers that are named first.
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
    """Of such ways the one that costs least within the limit."""
    return next((way for way in reversed(found) if way.bytes <= limit), None)


def _served(offers: tuple[Offer, ...], many: int) -> list[_Part]:
    """All ways to serve so many alike items."""
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
    """Those that cost less than all with fewer bytes."""
    kept: list[_Part] = []
    for part in sorted(parts):
        if not kept or part.cost < kept[-1].cost:
            kept.append(part)
    return kept


def _thinned(parts: list[_Part]) -> list[_Part]:
    """The first, and the last of each of `MOST` equal ranges of bytes."""
    if len(parts) <= MOST:
        return parts
    low, high = parts[0].bytes, parts[-1].bytes
    ranges = [(part.bytes - low) * MOST // (high - low + 1) for part in parts]
    lasts = [part for part, (here, after) in zip(parts, pairwise([*ranges, MOST]), strict=True) if here != after]
    return lasts if lasts[0] is parts[0] else [parts[0], *lasts]


def _taken(items: Sequence[Sequence[Offer]], counts: dict[tuple[Offer, ...], tuple[int, ...]]) -> tuple[int, ...]:
    """The offer of each item, by its place among those alike."""
    ends = {kind: list(accumulate(numbers)) for kind, numbers in counts.items()}
    seen = dict.fromkeys(counts, 0)
    taken = []
    for item in map(tuple, items):
        taken.append(next(offer for offer, end in enumerate(ends[item]) if seen[item] < end))
        seen[item] += 1
    return tuple(taken)
