"""What rows of tokens tell: where texts start and end, which are cut, and what stands before an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import groupby

_SHARED = 3
"""So many tokens in a row that all rows share are a mark. Of special tokens, one is enough."""
_COMPARED = 64
"""The most rows whose tokens are compared with each other."""


@dataclass
class Row:
    """The tokens of one text, without padding, and which of them bear loss; None if that is not known."""

    tokens: list[int]
    learned: list[bool] | None = None

    @property
    def any_learned(self) -> bool:
        return self.learned is not None and any(self.learned[1:])

    def learns(self, wanted: Set[int]) -> bool:
        """Does one of these tokens bear loss?"""
        pairs = zip(self.tokens, self.learned or (), strict=False)
        return any(learned and token in wanted for token, learned in pairs)


def starts_of(rows: Iterable[Row], start: int) -> tuple[int, int]:
    """How often texts start, and how often with two starts."""
    runs = [sum(1 for _ in run) for row in rows for token, run in groupby(row.tokens) if token == start]
    return len(runs), sum(run > 1 for run in runs)


def is_ended(row: Row, ends: Set[int]) -> bool:
    """Is the last token an end, or the one before it? Some templates write a line break after the end."""
    return not ends.isdisjoint(row.tokens[-2:])


def is_cut(row: Row, longest: int, ends: Set[int]) -> bool:
    """Does a row of the longest length lack its end, or all of its answer?"""
    lost = row.learned is not None and not row.any_learned
    return len(row.tokens) == longest and (lost or not is_ended(row, ends))


def are_aligned(rows: list[Row]) -> bool:
    """Do all rows begin with the same token, and do their first tokens bear no loss?"""
    masked = all(row.learned is not None and not any(row.learned[1:3]) for row in rows)
    return masked and len({row.tokens[0] for row in rows}) == 1


def mark_of(rows: list[Row], special: Set[int]) -> list[int]:
    """The tokens between two parts of every row that differ from row to row; empty if there are none."""
    rows = rows[:_COMPARED]
    shared = set.intersection(*(set(_grams(row.tokens)) for row in rows))
    shared |= {(token,) for token in special if all(token in row.tokens for row in rows)}
    parting = [gram for gram in shared if _parts(gram, rows)]
    if not parting:
        return []
    places = sorted(_place(rows[0].tokens, gram) for gram in parting)
    width = {_place(rows[0].tokens, gram): len(gram) for gram in parting}
    last = first = places[-1]
    while first - 1 in width:
        first -= 1
    return rows[0].tokens[first : last + width[last]]


def _grams(tokens: list[int]) -> Iterator[tuple[int, ...]]:
    return (tuple(tokens[place : place + _SHARED]) for place in range(1, len(tokens) - _SHARED + 1))


def _place(tokens: list[int], gram: tuple[int, ...]) -> int:
    return next(place for place in range(len(tokens)) if tuple(tokens[place : place + len(gram)]) == gram)


def _parts(gram: tuple[int, ...], rows: list[Row]) -> bool:
    """Do half of the rows differ before these tokens, and several after them?"""
    places = [_place(row.tokens, gram) for row in rows]
    before = {tuple(row.tokens[:place]) for row, place in zip(rows, places, strict=True)}
    after = {tuple(row.tokens[place + len(gram) :]) for row, place in zip(rows, places, strict=True)}
    return 2 * len(before) >= len(rows) and len(after) >= 3 and () not in after
