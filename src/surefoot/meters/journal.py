"""Journal: the events that meters saw, entry by entry, to post to the books later, unchanged or unrolled.

An entry has words, sizes and numbers. Words name the event. Sizes (bytes, shapes, FLOPs) seldom depend on how often a
block is repeated. Numbers do: the block of a module, the number of storages of the same kind that were booked since
this one, and the FLOPs computed during a collective.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from surefoot.events.listener import Segment

Numbers = tuple[int, ...]
Split = Callable[[str], tuple[str, Numbers]]
"""Splits a module's name into a pattern and the number of its repeated block, if it is in one."""


class Entry(NamedTuple):
    """One line of a journal."""

    words: tuple[Any, ...]
    sizes: Numbers = ()
    numbers: Numbers = ()


class Noted(NamedTuple):
    """A storage: its kind and number, or its name from before the journal began; and its entry."""

    words: tuple[Any, ...]
    numbers: Numbers
    entry: int = -1


class Journal:
    """Records events in place of the books."""

    def __init__(self, split: Split) -> None:
        self.entries: list[Entry] = []
        self._split = split
        self._kinds: Counter[tuple[Any, ...]] = Counter()
        self._freed: dict[int, Noted] = {}

    def enter(self, segment: Segment) -> None:
        self.entries.append(Entry(("enter", segment)))

    def book(self, size: int, account: str, module: str, operator: str, tensor: str, stream: int = 0) -> Noted:
        pattern, block = self._split(module)
        shape, sizes = _shape(tensor)
        words = ("book", account, pattern, operator, shape, stream)
        self.entries.append(Entry(words, (size, *sizes), block))
        self._kinds[words] += 1
        return Noted((words,), (self._kinds[words],), len(self.entries) - 1)

    def free(self, booked: Noted) -> None:
        self._freed[len(self.entries)] = booked
        self.entries.append(Entry(("free", *booked.words), (), self._since(booked)))

    def settle(self, booked: Noted, account: str, module: str) -> None:
        pattern, block = self._split(module)
        self.entries.append(Entry(("settle", account, pattern, *booked.words), (), (*block, *self._since(booked))))

    def _since(self, booked: Noted) -> Numbers:
        return booked.numbers if booked.entry < 0 else (self._kinds[booked.words[0]] - booked.numbers[0],)

    def settle_born_in(self, phases: tuple[str, ...], account: str) -> None:
        self.entries.append(Entry(("settle_born_in", account, phases)))

    def book_workspace(self, size: int, module: str, operator: str) -> None:
        pattern, block = self._split(module)
        self.entries.append(Entry(("workspace", pattern, operator), (size,), block))

    def count_flops(self, segment: Segment, again: bool, module: str, amount: int, attention: Numbers) -> None:
        pattern, block = self._split(module)
        self.entries.append(Entry(("flops", again, pattern), (amount, *attention), block))

    def count_work(
        self, segment: Segment, again: bool, module: str, operator: str, number_format: str, flops: int, moved: int,
        shape: Numbers,
    ) -> None:  # fmt: skip
        pattern, block = self._split(module)
        words = ("work", segment, again, pattern, operator, number_format)
        self.entries.append(Entry(words, (flops, moved, *shape), block))

    def count_traffic(self, kind: str, dimension: str, phase: Segment, module: str, size: int) -> None:
        pattern, block = self._split(module)
        self.entries.append(Entry(("traffic", kind, dimension, phase, pattern), (size,), block))

    def count_overlap(self, kind: str, dimension: str, phase: Segment, amount: int, *, together: bool) -> None:
        """Adds the FLOPs that overlap a collective. Collectives that end together have evenly growing amounts."""
        words = ("overlap", kind, dimension, phase)
        self.entries.append(Entry(words, (), (amount,)) if together else Entry(words, (amount,)))

    def count_tokens(self, unit: str, amount: int) -> None:
        self.entries.append(Entry(("tokens", unit), (amount,)))

    def close(self) -> None:
        self.entries.append(Entry(("close",)))

    def finished(self) -> list[Entry]:
        """All entries, with the names of segments. Storages that are freed together are sorted by age."""
        entries: list[Entry] = []
        for freeing, together in itertools.groupby(enumerate(self.entries), lambda item: item[1].words[0] == "free"):
            run = list(together)
            entries += (_named(entry) for _, entry in (sorted(run, key=self._age) if freeing else run))
        return entries

    def _age(self, item: tuple[int, Entry]) -> tuple[int, tuple[Any, ...], Numbers]:
        booked = self._freed[item[0]]
        return (booked.entry, (), ()) if booked.entry >= 0 else (-1, booked.words, booked.numbers)


def _named(entry: Entry) -> Entry:
    """An entry with the name of its segment in place of the segment."""
    if not any(isinstance(word, Segment) for word in entry.words):
        return entry
    return entry._replace(words=tuple(word.name if isinstance(word, Segment) else word for word in entry.words))


def post(entries: Sequence[tuple[Any, Numbers, Numbers]], books: Any, storages: dict[Any, Any]) -> Iterator[None]:
    """Posts entries to the books. Yields each time the journal was closed.

    `storages` are the bookings from before the journal began, by their names in the journal.
    """
    memory, flops, traffic, tokens = books.memory.book, books.flops, books.traffic, books.tokens
    work = books.work
    segment, booked = books.phases.segment, defaultdict(list)
    for words, sizes, numbers in entries:
        kind = words[0]
        if kind == "book":
            _, account, pattern, operator, shape, stream = words
            tensor = filled(shape, sizes[1:])
            module = filled(pattern, numbers)
            booked[words].append(memory.book(sizes[0], account, module, operator, tensor, stream))
        elif kind == "free":
            memory.free(_storage(words[1:], numbers, booked, storages))
        elif kind == "settle":
            _, account, pattern, *named = words
            block = pattern.count("{}")
            storage = _storage(tuple(named), numbers[block:], booked, storages)
            memory.settle(storage, account, filled(pattern, numbers[:block]))
        elif kind == "settle_born_in":
            memory.settle_born_in(words[2], words[1])
        elif kind == "workspace":
            memory.book_workspace(sizes[0], filled(words[1], numbers), words[2])
        elif kind == "enter":
            segment = Segment(words[1])
            memory.enter(segment)
        elif kind == "flops":
            flops.count_flops(segment, words[1], filled(words[2], numbers), sizes[0], sizes[1:])
        elif kind == "work":
            _, phase, again, pattern, operator, number_format = words
            module = filled(pattern, numbers)
            work.count_work(Segment(phase), again, module, operator, number_format, sizes[0], sizes[1], sizes[2:])
        elif kind == "traffic":
            _, *place, phase, pattern = words
            traffic.count_traffic(*place, Segment(phase), filled(pattern, numbers), sizes[0])
        elif kind == "overlap":
            _, *place, phase = words
            traffic.count_overlap(*place, Segment(phase), (*sizes, *numbers)[0])
        elif kind == "tokens":
            tokens.count_tokens(words[1], sizes[0])
        else:
            yield


def _storage(words: tuple[Any, ...], numbers: Numbers, booked: dict[Any, Any], storages: dict[Any, Any]) -> Any:
    if isinstance(words[0], tuple):
        return booked[words[0]][-1 - numbers[0]]
    return storages[tuple(filled(word, numbers) for word in words)]


def _shape(tensor: str) -> tuple[str, Numbers]:
    """Splits `float32[4, 8]` into `float32[{}, {}]` and its sizes."""
    dtype, _, sizes = tensor.partition("[")
    found = tuple(map(int, re.findall(r"\d+", sizes)))
    return f"{dtype}[{', '.join('{}' for _ in found)}]", found


@functools.lru_cache(maxsize=1 << 16)
def filled(pattern: str, numbers: Numbers) -> str:
    """A pattern with its numbers in place."""
    for number in numbers:
        pattern = pattern.replace("{}", str(number), 1)
    return pattern
