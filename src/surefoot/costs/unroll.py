"""Unroll: computes the journal of a model with many repeated blocks from journals of the same model with few.

One more block adds one turn to every loop of a step: over the blocks in forward and backward, and over their
parameters in each list that an optimizer makes. So the journals of `n` and `n + 1` blocks differ by inserted
stretches, each of which repeats the entries before it. Once found, a stretch can be inserted any number of times. The
numbers in its entries (which block, which of several storages, sometimes a size) grow by the same amount with each
turn and with each block.

This is verified: `unrolled` first predicts a third journal, of `n + 2` blocks, and raises unless every entry matches.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Numbers = tuple[int, ...]
Entry = tuple[Any, Numbers, Numbers]
"""What happened (hashable); sizes, which seldom depend on the number of blocks; numbers, which often do."""

FAR = 4096
"""How many entries to compare to find where an inserted stretch ends."""


class Irregular(Exception):
    """The journals do not come from one loop with a growing number of turns."""


@dataclass(frozen=True)
class Line:
    """An entry of the longer journal. Its numbers grow with each block and, if it is inserted, with each turn."""

    key: int
    numbers: Numbers
    by_block: Numbers
    by_turn: Numbers = ()

    @functools.cached_property
    def grows(self) -> bool:
        return any(self.by_block) or any(self.by_turn)


def unrolled(journals: Sequence[Sequence[Entry]], more: int) -> list[Entry]:
    """Adds `more` blocks to the last of three journals. The three must grow by one block each."""
    keys = Keys(journals)
    shorter, longer, proof = map(keys.of, journals)
    stretches = list(_stretches(shorter, longer))
    _prove(_grown(stretches, 1), proof)
    return [keys.entry(key, numbers) for key, numbers in _grown(stretches, 1 + more)]


# ------------------------------------------------------------------------------------------- entries as numbers


@dataclass(frozen=True)
class Keyed:
    """A journal: a key for each entry, to compare entries, and its numbers, which may differ."""

    keys: list[int]
    numbers: list[Numbers]


class Keys:
    """A number for every distinct entry."""

    def __init__(self, journals: Sequence[Sequence[Entry]]) -> None:
        first, *others = ({(words, sizes) for words, sizes, _ in each} for each in journals)
        self._common = first.intersection(*others)
        """Entries with the same sizes in each journal. Other sizes depend on the number of blocks."""
        self._keys: dict[Hashable, int] = {}
        self._entries: list[tuple[Any, Numbers | None, int]] = []

    def of(self, journal: Sequence[Entry]) -> Keyed:
        keyed = Keyed([], [])
        for words, sizes, numbers in journal:
            fixed = (words, sizes) in self._common
            entry = words, sizes if fixed else None, len(numbers)
            if entry not in self._keys:
                self._keys[entry] = len(self._entries)
                self._entries.append(entry)
            keyed.keys.append(self._keys[entry])
            keyed.numbers.append(numbers if fixed else (*numbers, *sizes))
        return keyed

    def entry(self, key: int, numbers: Numbers) -> Entry:
        words, sizes, own = self._entries[key]
        return words, numbers[own:] if sizes is None else sizes, numbers[:own]


# ------------------------------------------------------------------------------------------- finding insertions


def _stretches(shorter: Keyed, longer: Keyed) -> Iterator[tuple[bool, list[Line]]]:
    """The longer journal in stretches. Each stretch is inserted, or also in the shorter journal."""
    lines: list[Line] = []
    at = 0
    for here, length in _insertions(shorter.keys, longer.keys):
        began = len(lines)
        lines += (_kept(shorter, at + n, longer, began + n) for n in range(here - began))
        at += here - began
        yield False, lines[began:]
        lines += (_turned(longer, here + n, lines[here + n - length]) for n in range(length))
        yield True, lines[here:]
    began = len(lines)
    lines += (_kept(shorter, at + n, longer, began + n) for n in range(len(longer.keys) - began))
    yield False, lines[began:]


def _insertions(shorter: list[int], longer: list[int]) -> Iterator[tuple[int, int]]:
    """The places of insertions in the longer journal, and their lengths.

    In a loop, the turn before the last counts as inserted: the first and the last turn may have special numbers.
    """
    places = defaultdict(list)
    for place, key in enumerate(longer):
        places[key].append(place)
    at = here = before = 0
    while at < len(shorter) or here < len(longer):
        same = _same(shorter, at, longer, here, len(shorter))
        at, here = at + same, here + same
        if at == len(shorter) and here == len(longer):
            return
        length = _inserted(shorter, at, longer, here, places)
        turns = longer[here - 2 * length : here - length] == longer[here - length : here]
        first = here - length if turns and here - 2 * length >= before else here
        yield first, length
        here += length
        before = here


def _same(shorter: list[int], at: int, longer: list[int], here: int, most: int) -> int:
    """For how many entries the journals continue alike."""
    most = min(most, len(shorter) - at, len(longer) - here)
    return next((n for n in range(most) if shorter[at + n] != longer[here + n]), most)


def _inserted(shorter: list[int], at: int, longer: list[int], here: int, places: dict[int, list[int]]) -> int:
    """How many entries were inserted: they repeat those before them, and the journals continue alike after them."""
    ends = [len(longer)] if at == len(shorter) else places[shorter[at]]
    best, longest = 0, -1
    for length in (end - here for end in ends if here < end <= 2 * here):
        if longer[here - length : here] != longer[here : here + length]:
            continue
        same = _same(shorter, at, longer, here + length, FAR)
        if same > longest:
            best, longest = length, same
    if not best:
        raise Irregular(f"entry {here} is neither in the shorter journal nor one more turn of a loop")
    return best


def _kept(shorter: Keyed, at: int, longer: Keyed, here: int) -> Line:
    before, now = shorter.numbers[at], longer.numbers[here]
    return Line(longer.keys[here], now, tuple(b - a for a, b in zip(before, now, strict=True)))


def _turned(longer: Keyed, here: int, turn_before: Line) -> Line:
    """An entry of an inserted turn. The same entry one turn before shows how it grows."""
    if turn_before.by_turn:
        raise Irregular(f"entry {here} repeats an entry that was inserted itself")
    now = longer.numbers[here]
    by_turn = tuple(b - a for a, b in zip(turn_before.numbers, now, strict=True))
    return Line(longer.keys[here], now, turn_before.by_block, by_turn)


# ------------------------------------------------------------------------------------------- growing and proving


def _grown(stretches: Sequence[tuple[bool, list[Line]]], more: int) -> Iterator[tuple[int, Numbers]]:
    """The longer journal with `more` blocks: each insertion is repeated once for each of them."""
    for inserted, lines in stretches:
        for turn in range(1 + more if inserted else 1):
            for line in lines:
                yield line.key, _after(line, more, turn) if line.grows else line.numbers


def _after(line: Line, more: int, turn: int) -> Numbers:
    grown = tuple(n + more * b for n, b in zip(line.numbers, line.by_block, strict=True))
    return tuple(n + turn * t for n, t in zip(grown, line.by_turn, strict=True)) if turn else grown


def _prove(predicted: Iterator[tuple[int, Numbers]], proof: Keyed) -> None:
    for at, found in enumerate(zip(proof.keys, proof.numbers, strict=True)):
        if next(predicted, None) != found:
            raise Irregular(f"entry {at} of the journal with two more blocks is not as predicted")
    if next(predicted, None) is not None:
        raise Irregular("the journal with two more blocks is shorter than predicted")
